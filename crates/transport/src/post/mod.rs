//! Posting from the host.
//!
//! ```text
//! poster, send, recv   what users call
//! request              a send work request as a value, and as a WQE
//! host                 an endpoint's queues, by one of two ways:
//!   ├─ rings           a NIC that reads rings, as kernels post to it: protocol, queue, word;
//!   │                  format and completion have what depends on the NIC
//!   └─ direct          a NIC that takes calls
//! words                what both ways share: counters, first error, abort
//! ```

mod backoff;
mod completion;
mod direct;
mod format;
mod host;
mod poster;
pub(crate) mod protocol;
mod queue;
mod recv;
mod request;
mod rings;
mod send;
mod word;
mod words;
mod work;

pub(crate) use completion::{Consumed, CqFormat};
pub(crate) use host::HostQueues;
pub use poster::Poster;
pub(crate) use protocol::{first_reserved, index_of};
pub use work::{Posted, Received};
