//! Receiving: the bytes of a socket as fragments of memory.

pub mod abi;
mod control;
mod device;
mod error;
mod fragment;
mod incoming;
mod landing;
mod ledger;

pub use control::{Announced, Announcements};
pub use device::DeviceReceiver;
pub use error::{ControlError, ReceiveError, TokenError};
pub use fragment::{Fragment, Source};
pub use incoming::{Incoming, Limits, Message};
pub use landing::{Landing, Span};
pub use ledger::Ledger;

use warpverbs_gpu::Buffer;

/// How a call of [`Receiver::receive`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, at least one, were received and described by fragments.
    Bytes(u64),
    /// Nothing now: the socket is empty, or all landing memory is in use.
    WouldBlock,
    /// The peer will send no more.
    End,
}

/// The receiving side of one stream.
pub trait Receiver {
    /// Receives what is there, at most `most` bytes, and appends its fragments to `into`, in stream
    /// order and without gaps. Never blocks.
    ///
    /// # Errors
    /// The connection failed, or the kernel reported something that cannot be.
    fn receive(&mut self, most: u64, into: &mut Vec<Fragment>) -> Result<Received, ReceiveError>;

    /// The memory that offsets of fragments from this source count in.
    fn memory(&self, source: Source) -> Option<&Buffer>;

    /// Returns the memory of fragments, or of parts of them, that have been unpacked. In any order;
    /// the receiver may collect tokens and return them to the kernel later.
    ///
    /// # Errors
    /// The kernel refused tokens, or a fragment was not received here or was given back before.
    fn give_back(&mut self, fragments: &[Fragment]) -> Result<(), ReceiveError>;
}
