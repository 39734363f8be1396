//! Sends from device memory or pinned host memory, without copies.

use super::{Completion, SendError, Sends};
use crate::sys;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use warpverbs_mem::Region;

/// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED`.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// Memory that is sent from.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// A dmabuf, by the id that the kernel gave it when it was bound for sending.
    Dmabuf {
        /// The id.
        id: u32,
        /// Its bytes.
        size: u64,
    },
    /// Host memory.
    Host(Region),
}

impl Outgoing {
    fn size(&self) -> u64 {
        match self {
            Self::Dmabuf { size, .. } => *size,
            Self::Host(region) => region.len() as u64,
        }
    }
}

/// The sends of one TCP socket without copies, and their completions.
#[derive(Debug)]
pub struct Zerocopy(Sends);

impl Zerocopy {
    /// Enables it on a socket on which no other code sends with `MSG_ZEROCOPY`.
    ///
    /// # Errors
    /// The socket is not one that sends without copies.
    pub fn enable(socket: BorrowedFd<'_>) -> Result<Self, SendError> {
        sys::set_option(socket, libc::SO_ZEROCOPY, &1i32.to_ne_bytes())
            .map_err(|cause| SendError::Socket { call: "setsockopt(SO_ZEROCOPY)", cause })?;
        Ok(Self(Sends::default()))
    }

    /// Sends up to `len` bytes from `offset` on without waiting: the number of the send, and how many
    /// bytes it took. They must not change until the send has completed. A socket that sends from a
    /// dmabuf must be bound to the interface that the dmabuf is bound to.
    ///
    /// # Errors
    /// They are not inside of the memory, or the system's: among them `EAGAIN` of a full socket, and
    /// `ENOBUFS` while too many pages are pinned or too many completions wait for [`Zerocopy::poll`].
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        from: &Outgoing,
        offset: u64,
        len: u64,
    ) -> Result<(u64, u64), SendError> {
        let size = from.size();
        if offset > size || len > size - offset {
            return Err(SendError::Outside { offset, len, size });
        }
        let bytes = match from {
            Outgoing::Dmabuf { id, .. } => sys::send_dmabuf(socket, *id, offset, len),
            Outgoing::Host(region) => sys::send_zerocopy(socket, region, offset, len),
        };
        let failed = |cause| SendError::Socket { call: "sendmsg(MSG_ZEROCOPY)", cause };
        let bytes = bytes.map_err(failed)?;
        Ok((self.0.sent(), bytes))
    }

    /// Takes completions that the kernel has queued, without waiting.
    ///
    /// # Errors
    /// The socket failed, or a completion cannot be.
    pub fn poll(&mut self, socket: BorrowedFd<'_>) -> Result<&Sends, SendError> {
        while let Some(completion) = next_completion(socket)? {
            self.0.completed(completion)?;
        }
        Ok(&self.0)
    }

    /// As far as completions were taken.
    pub fn sends(&self) -> &Sends {
        &self.0
    }
}

/// The next completion. Other errors in the queue, as those of ICMP, are skipped.
fn next_completion(socket: BorrowedFd<'_>) -> Result<Option<Completion>, SendError> {
    loop {
        match sys::next_error(socket) {
            Ok(Some(error)) if error.origin == ORIGIN_ZEROCOPY => {
                let copied = error.code & CODE_COPIED != 0;
                return Ok(Some(Completion { first: error.info, last: error.data, copied }));
            }
            Ok(_) => {}
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(cause) => return Err(SendError::Socket { call: "recvmsg(MSG_ERRQUEUE)", cause }),
        }
    }
}
