//! A receiver over a socket of the kernel's device-memory TCP.

use super::abi::{Announcement, DmabufToken, MSG_SOCK_DEVMEM};
use super::{Fragment, Incoming, Limits, Message, ReceiveError, Received, Source, Span};
use crate::sys;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use warpverbs_gpu::Buffer;
use warpverbs_mem::Region;
use zerocopy::IntoBytes as _;

/// Fragments that one `recvmsg` announces at most.
const FRAGMENTS: usize = 1024;

/// Result of a `recvmsg`.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// Bytes of the stream; 0 at its end.
    pub bytes: usize,
    /// Bytes of control data.
    pub control: usize,
    /// Control data was cut off.
    pub truncated: bool,
}

/// The system calls of a device-memory socket. A connected TCP socket implements them; tests put a
/// model of the kernel in its place.
pub trait DeviceSocket: Send {
    /// `recvmsg(MSG_SOCK_DEVMEM | MSG_DONTWAIT)` into `span` of host memory, with control data into
    /// `control`.
    ///
    /// # Errors
    /// The system's.
    fn receive(&mut self, memory: &Region, span: Span, control: &mut [u64]) -> io::Result<Got>;

    /// `setsockopt(SO_DEVMEM_DONTNEED)`. Returns how many tokens were freed.
    ///
    /// # Errors
    /// The system's.
    fn return_tokens(&mut self, ranges: &[DmabufToken]) -> io::Result<u32>;
}

impl DeviceSocket for TcpStream {
    fn receive(&mut self, memory: &Region, span: Span, control: &mut [u64]) -> io::Result<Got> {
        let flags = MSG_SOCK_DEVMEM | libc::MSG_DONTWAIT;
        sys::receive(self.as_fd(), memory, span, control, flags)
    }

    fn return_tokens(&mut self, ranges: &[DmabufToken]) -> io::Result<u32> {
        sys::set_option(self.as_fd(), libc::SO_DEVMEM_DONTNEED, ranges.as_bytes())
    }
}

/// The receiving side of one stream whose packets may be in device memory. On a queue without a
/// binding, or over loopback, every byte is [`Source::Plain`].
pub struct DeviceReceiver {
    socket: Box<dyn DeviceSocket>,
    incoming: Incoming,
    landing: Buffer,
    dmabufs: Vec<(u32, Buffer)>,
    control: Vec<u64>,
}

impl DeviceReceiver {
    /// `landing` is pinned host memory, which the kernel copies to what it cannot leave in device
    /// memory. Its length bounds what one call receives, in device memory too.
    pub fn new(socket: impl DeviceSocket + 'static, landing: Buffer, limits: Limits) -> Self {
        let limits = Limits { landing: landing.len() as u64, ..limits };
        let control = vec![0; FRAGMENTS * Announcement::BYTES / size_of::<u64>()];
        let (incoming, dmabufs) = (Incoming::new(limits), Vec::new());
        Self { socket: Box::new(socket), incoming, landing, dmabufs, control }
    }

    /// Fragments may be in `memory`, whose dmabuf the kernel has bound under `id`. The binding itself
    /// must outlive this receiver, or the connection fails.
    pub fn bind(&mut self, id: u32, memory: Buffer) {
        self.incoming.bind(id, memory.len() as u64);
        self.dmabufs.retain(|(known, _)| *known != id);
        self.dmabufs.push((id, memory));
    }

    /// Receives what is there, at most `most` bytes, and appends its fragments to `into`, in stream
    /// order and without gaps. Never waits.
    ///
    /// # Errors
    /// The connection failed, or the kernel reported something that cannot be.
    pub fn receive(
        &mut self,
        most: u64,
        into: &mut Vec<Fragment>,
    ) -> Result<Received, ReceiveError> {
        let span = self.incoming.room(most);
        if span.len == 0 {
            return Ok(Received::WouldBlock);
        }
        let got = loop {
            match self.socket.receive(self.landing.region(), span, &mut self.control) {
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

    /// The memory that offsets of fragments from this source count in.
    pub fn memory(&self, source: Source) -> Option<&Buffer> {
        match source {
            Source::Linear | Source::Plain => Some(&self.landing),
            Source::Dmabuf(id) => {
                self.dmabufs.iter().find(|(known, _)| *known == id).map(|(_, memory)| memory)
            }
        }
    }

    /// Takes back the memory of fragments, or of parts of them, that have been unpacked. In any
    /// order; tokens are collected and returned to the kernel many at a time.
    ///
    /// # Errors
    /// The kernel refused tokens, or a fragment was not received here or was given back before.
    pub fn give_back(&mut self, fragments: &[Fragment]) -> Result<(), ReceiveError> {
        self.incoming.give_back(fragments)?;
        if self.incoming.ledger().is_due() { self.return_tokens() } else { Ok(()) }
    }

    /// Returns all tokens to the kernel whose fragments have been given back.
    ///
    /// # Errors
    /// The kernel refused them.
    pub fn return_tokens(&mut self) -> Result<(), ReceiveError> {
        let ledger = self.incoming.ledger_mut();
        loop {
            let batch = ledger.batch();
            if batch.is_empty() {
                return Ok(());
            }
            let call = "setsockopt(SO_DEVMEM_DONTNEED)";
            let freed = self.socket.return_tokens(batch);
            ledger.returned(freed.map_err(|cause| ReceiveError::Socket { call, cause })?)?;
        }
    }
}
