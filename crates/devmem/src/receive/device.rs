//! A receiver over a socket of the kernel's device-memory TCP.

use super::abi::{Announcement, MSG_SOCK_DEVMEM};
use super::{Fragment, Incoming, Limits, Message, ReceiveError, Received, Receiver, Source};
use crate::sys;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use warpverbs_gpu::Buffer;
use zerocopy::IntoBytes as _;

/// Fragments that one `recvmsg` announces at most.
const FRAGMENTS: usize = 1024;

/// Receives from a connected TCP socket whose packets may be in device memory. On a queue without a
/// binding, or over loopback, every byte is [`Source::Plain`].
pub struct DeviceReceiver {
    socket: OwnedFd,
    incoming: Incoming,
    landing: Buffer,
    dmabufs: Vec<(u32, Buffer)>,
    control: Vec<u64>,
}

impl DeviceReceiver {
    /// `landing` is pinned host memory, which the kernel copies to what it cannot leave in device
    /// memory. Its length bounds what one call receives, in device memory too.
    pub fn new(socket: OwnedFd, landing: Buffer, limits: Limits) -> Self {
        let limits = Limits { landing: landing.len() as u64, ..limits };
        let control = vec![0; FRAGMENTS * Announcement::BYTES / size_of::<u64>()];
        let (incoming, dmabufs) = (Incoming::new(limits), Vec::new());
        Self { socket, incoming, landing, dmabufs, control }
    }

    /// Fragments may be in `memory`, whose dmabuf the kernel has bound under `id`. The binding itself
    /// must outlive this receiver, or the connection fails.
    pub fn bind(&mut self, id: u32, memory: Buffer) {
        self.incoming.bind(id, memory.len() as u64);
        self.dmabufs.retain(|(known, _)| *known != id);
        self.dmabufs.push((id, memory));
    }

    /// Returns all tokens to the kernel whose fragments have been given back.
    ///
    /// # Errors
    /// The kernel refused them.
    pub fn return_tokens(&mut self) -> Result<(), ReceiveError> {
        loop {
            let batch = self.incoming.batch();
            if batch.is_empty() {
                return Ok(());
            }
            let option = (libc::SO_DEVMEM_DONTNEED, batch.as_bytes());
            let freed = sys::set_option(self.socket.as_fd(), option.0, option.1);
            let call = "setsockopt(SO_DEVMEM_DONTNEED)";
            self.incoming.returned(freed.map_err(|cause| ReceiveError::Socket { call, cause })?)?;
        }
    }

    /// Tokens and position in the stream.
    pub fn incoming(&self) -> &Incoming {
        &self.incoming
    }
}

impl Receiver for DeviceReceiver {
    fn receive(&mut self, most: u64, into: &mut Vec<Fragment>) -> Result<Received, ReceiveError> {
        let span = self.incoming.room(most);
        if span.len == 0 {
            return Ok(Received::WouldBlock);
        }
        let flags = MSG_SOCK_DEVMEM | libc::MSG_DONTWAIT;
        let (socket, landing) = (self.socket.as_fd(), self.landing.region());
        let got = loop {
            match sys::receive(socket, landing, span, &mut self.control, flags) {
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        match got {
            Ok(got) if got.bytes == 0 => Ok(Received::End),
            Ok(got) => {
                let control = &self.control.as_bytes()[..got.control];
                let (bytes, truncated) = (got.bytes as u64, got.truncated);
                self.incoming.received(Message { bytes, control, truncated }, into)?;
                Ok(Received::Bytes(bytes))
            }
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                // Nothing else to do: the queue may be short of pages.
                self.return_tokens()?;
                Ok(Received::WouldBlock)
            }
            Err(cause) => Err(ReceiveError::Socket { call: "recvmsg(MSG_SOCK_DEVMEM)", cause }),
        }
    }

    fn memory(&self, source: Source) -> Option<&Buffer> {
        match source {
            Source::Linear | Source::Plain => Some(&self.landing),
            Source::Dmabuf(id) => {
                self.dmabufs.iter().find(|(known, _)| *known == id).map(|(_, memory)| memory)
            }
        }
    }

    fn give_back(&mut self, fragments: &[Fragment]) -> Result<(), ReceiveError> {
        self.incoming.give_back(fragments)?;
        if self.incoming.is_due() { self.return_tokens() } else { Ok(()) }
    }
}

impl AsFd for DeviceReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for DeviceReceiver {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
