//! Sends from device memory or pinned host memory, without copies.

use super::{Completion, SendError, Sends};
use crate::sys;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
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

/// The sends of one TCP socket without copies, and what the kernel says of them.
#[derive(Debug)]
pub struct Zerocopy(Sends);

impl Zerocopy {
    /// Of a socket on which nobody else sends with `MSG_ZEROCOPY`.
    ///
    /// # Errors
    /// The socket is not one that sends without copies.
    pub fn enable(socket: BorrowedFd<'_>) -> io::Result<Self> {
        sys::set_option(socket, libc::SO_ZEROCOPY, &1i32.to_ne_bytes())?;
        Ok(Self(Sends::new()))
    }

    /// Sends up to `len` bytes without waiting: the number of the send, and how many bytes it took.
    /// The bytes must not change until the send has completed.
    ///
    /// # Errors
    /// The system's; among them that of a full socket.
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        from: &Outgoing,
        offset: u64,
        len: u64,
    ) -> io::Result<(u64, u64)> {
        let bytes = match from {
            Outgoing::Dmabuf { id, .. } => sys::send_dmabuf(socket, *id, offset, len),
            Outgoing::Host(region) => sys::send_zerocopy(socket, region, offset, len),
        }?;
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

/// The sending side of one TCP socket.
pub struct ZerocopySender {
    socket: OwnedFd,
    from: Outgoing,
    sends: Zerocopy,
}

impl ZerocopySender {
    /// Sends bytes of `from` over `socket`, which nobody else sends on with `MSG_ZEROCOPY`. A socket
    /// that sends from a dmabuf must be bound to the interface that the dmabuf is bound to.
    ///
    /// # Errors
    /// The socket is not one that sends without copies.
    pub fn new(socket: OwnedFd, from: Outgoing) -> Result<Self, SendError> {
        let sends = Zerocopy::enable(socket.as_fd())
            .map_err(|cause| SendError::Socket { call: "setsockopt(SO_ZEROCOPY)", cause })?;
        Ok(Self { socket, from, sends })
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
        match self.sends.send(self.socket.as_fd(), &self.from, offset, len) {
            Ok(sent) => Ok(Some(sent)),
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
        self.sends.poll(self.socket.as_fd())
    }
}
