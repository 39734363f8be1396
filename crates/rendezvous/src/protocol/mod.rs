//! The store's messages as bytes and as values.
//!
//! A connection begins with [`Opcode::Validate`], which has no reply; every client then pings.
//! Replies carry no opcode: a client knows from its request what comes back ([`Reply`]).

mod decoder;
mod error;
mod opcode;
pub(crate) mod refused;
mod reply;
mod request;

pub use decoder::Decoder;
pub use error::{ProtocolError, ReplyError};
pub use opcode::Opcode;
pub use reply::{Reply, read};
pub(crate) use request::Field;
pub use request::Request;

/// The word that [`Opcode::Validate`] carries.
pub const MAGIC: u32 = 0x3c85_f7ce;
