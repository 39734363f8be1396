//! Ends a wait of the control thread.

use crate::AgentError;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;

pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> Result<Self, AgentError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        eventfd(0, flags).map(Self).map_err(|error| AgentError::system("eventfd", error))
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    pub(crate) fn wake(&self) {
        // Fails only if the counter is full, and then it is readable as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // Fails only if nobody has woken.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}
