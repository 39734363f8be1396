//! Waiting for a descriptor, with an end.

use super::VerbsError;
use crate::CallError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Makes reads of `fd` return instead of waiting.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), CallError> {
    let failed = |errno| CallError { call: "fcntl", errno };
    let flags = fcntl(fd, FcntlArg::F_GETFL).map_err(failed)?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(fd, FcntlArg::F_SETFL(flags)).map(drop).map_err(failed)
}

/// Calls `take` until it has something or `timeout` is over; `fd` tells when it may have.
pub(super) fn wait_for<T>(
    fd: BorrowedFd<'_>,
    timeout: Duration,
    mut take: impl FnMut() -> Result<T, CallError>,
) -> Result<Option<T>, VerbsError> {
    let start = Instant::now();
    loop {
        match take() {
            Ok(found) => return Ok(Some(found)),
            Err(CallError { errno: Errno::EAGAIN | Errno::EINTR, .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
            return Ok(None);
        };
        // Rounded up, so that the last round does not spin; a longer wait than fits comes again.
        let millis = left.as_millis().saturating_add(1).min(i32::MAX as u128) as i32;
        let wait = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], wait) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(CallError { call: "poll", errno }.into()),
        }
    }
}
