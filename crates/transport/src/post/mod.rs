//! Posting from the host.
//!
//! ```text
//! poster, send, recv   what users call
//! request              a send work request as a value, and as a WQE
//! host                 the words that all posters share: counters, first error, abort
//!   ├─ rings           a NIC that reads rings, as kernels post to it: protocol, queue, word
//!   └─ direct          a NIC that takes calls
//! ```

mod direct;
pub(crate) mod host;
#[cfg(test)]
mod model;
mod poster;
pub(crate) mod protocol;
mod queue;
mod recv;
mod request;
mod rings;
mod send;
mod word;
mod work;

pub use poster::Poster;
pub(crate) use recv::{MAX_RECV_SGES, recv_sges};
pub use work::{Posted, Received};
