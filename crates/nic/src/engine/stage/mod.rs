//! Host memory between payload and memory that only a copy engine reaches.
//!
//! [`Chunks`] is the memory, [`Copies`] says what goes from and to it, and when it has arrived.

mod chunks;
mod copies;

pub(crate) use chunks::{Chunks, Pool, Slice};
pub(crate) use copies::{Copies, Landed, Way};
