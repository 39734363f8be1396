//! Waiting for descriptors, and ending such a wait.

use rustix::event::{EventfdFlags, PollFd, Timespec, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Ends the waits of another thread, which polls it for reading.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Makes one that has not been woken.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the other thread, now or when it waits next.
    pub fn wake(&self) {
        // Fails only if the counter is full, and then it is readable as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets it, so that the next wait sleeps.
    pub fn clear(&self) {
        // Fails only if it was not woken.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `fds` is ready, for `limit` at most, an hour at most, or until a signal. How many
/// are ready.
///
/// # Errors
/// The system is out of memory.
pub fn poll(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<usize> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs().min(3600) as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    match rustix::event::poll(fds, limit.as_ref()) {
        Err(rustix::io::Errno::INTR) => Ok(0),
        ready => Ok(ready?),
    }
}
