//! Sends from device memory or pinned host memory, without copies.

use super::{Completion, SendError, Sends};
use crate::sys;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
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

/// The sending side of one TCP socket.
pub struct ZerocopySender {
    socket: OwnedFd,
    from: Outgoing,
    sends: Sends,
}

impl ZerocopySender {
    /// Sends bytes of `from` over `socket`, which nobody else sends on with `MSG_ZEROCOPY`. A socket
    /// that sends from a dmabuf must be bound to the interface that the dmabuf is bound to.
    ///
    /// # Errors
    /// The socket is not one that sends without copies.
    pub fn new(socket: OwnedFd, from: Outgoing) -> Result<Self, SendError> {
        sys::set_option(socket.as_fd(), libc::SO_ZEROCOPY, &1i32.to_ne_bytes())
            .map_err(|cause| SendError::Socket { call: "setsockopt(SO_ZEROCOPY)", cause })?;
        Ok(Self { socket, from, sends: Sends::new() })
    }

    /// Sends up to `len` bytes from `offset` on, without waiting: the number of the send and how many
    /// bytes it took; nothing if the socket takes none now. They must not change until the send
    /// has completed.
    ///
    /// # Errors
    /// They are not inside of the memory, or the connection failed.
    pub fn send(&mut self, offset: u64, len: u64) -> Result<Option<(u64, u64)>, SendError> {
        let size = self.from.size();
        if offset > size || len > size - offset {
            return Err(SendError::Outside { offset, len, size });
        }
        let sent = match &self.from {
            Outgoing::Dmabuf { id, .. } => sys::send_dmabuf(self.socket.as_fd(), *id, offset, len),
            Outgoing::Host(region) => sys::send_zerocopy(self.socket.as_fd(), region, offset, len),
        };
        match sent {
            Ok(bytes) => Ok(Some((self.sends.sent(), bytes))),
            // The second: too many completions wait for `poll`.
            Err(cause)
                if cause.kind() == ErrorKind::WouldBlock
                    || cause.raw_os_error() == Some(libc::ENOBUFS) =>
            {
                Ok(None)
            }
            Err(cause) => Err(SendError::Socket { call: "sendmsg(MSG_ZEROCOPY)", cause }),
        }
    }

    /// Takes completions that the kernel has queued, without waiting.
    ///
    /// # Errors
    /// The socket failed, or a completion cannot be.
    pub fn poll(&mut self) -> Result<&Sends, SendError> {
        while let Some(completion) = self.next_completion()? {
            self.sends.completed(completion)?;
        }
        Ok(&self.sends)
    }

    /// The next completion. Other errors in the queue, as those of ICMP, are skipped.
    fn next_completion(&self) -> Result<Option<Completion>, SendError> {
        loop {
            match sys::next_error(self.socket.as_fd()) {
                Ok(Some(error)) if error.origin == ORIGIN_ZEROCOPY => {
                    let copied = error.code & CODE_COPIED != 0;
                    return Ok(Some(Completion { first: error.info, last: error.data, copied }));
                }
                Ok(_) => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(cause) => {
                    return Err(SendError::Socket { call: "recvmsg(MSG_ERRQUEUE)", cause });
                }
            }
        }
    }
}
