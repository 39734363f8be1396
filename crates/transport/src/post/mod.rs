//! Posting from the host.

pub(crate) mod host;
#[cfg(test)]
mod model;
mod poster;
pub(crate) mod protocol;
mod queue;
mod recv;
mod send;
mod word;
mod work;

pub use poster::Poster;
pub(crate) use recv::{MAX_RECV_SGES, recv_sges};
pub use work::{Posted, Received, ReceivedKind, SendFlags};
