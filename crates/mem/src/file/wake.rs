//! A descriptor that becomes readable when a thread is to look up from its ring.

use nix::errno::Errno;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An eventfd.
#[derive(Debug)]
pub(super) struct Wake(File);

impl Wake {
    /// # Errors
    /// The system's.
    pub(super) fn new() -> Result<Self, Errno> {
        // SAFETY: two integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the kernel has just made it for this call.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    pub(super) fn wake(&self) {
        // It fails where the count is full: then the thread is to wake already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub(super) fn clear(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
