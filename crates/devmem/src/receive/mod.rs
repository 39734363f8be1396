//! Receiving: the bytes of a socket as fragments of memory.

pub mod abi;
mod control;
mod device;
mod error;
mod fragment;
mod incoming;
mod landing;
mod ledger;

pub use device::{DeviceReceiver, DeviceSocket, Got};
pub use error::{ControlError, ReceiveError, TokenError};
pub use fragment::{Fragment, Source};
pub use incoming::{Incoming, Limits, Message};
pub use landing::Span;
pub use ledger::Ledger;

/// How a call of [`DeviceReceiver::receive`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes, at least one, were received and described by fragments.
    Bytes(u64),
    /// Nothing now: the socket is empty, or all landing memory is in use.
    WouldBlock,
    /// The peer will send no more.
    End,
}
