//! Messages, one-sided reads and writes, and notifications over several TCP sockets.
//!
//! ```text
//! Domain ─ register ─▶ Registration ─ remote ─▶ RemoteKey ──(to the peer)──▶ write, read
//!    ├─ listen ─▶ Listener ─ accept ─▶ Link ◀── isend, irecv, write, read, notify
//!    └─ connect ─────────────────────▶     │              └─▶ Request ─▶ test, wait
//!                                          ├─ engine: sockets, bounce buffers, copies
//!                                          └─ protocol: frames, without I/O
//! ```
//!
//! Payload for host memory is received straight into place. Memory that only a copy engine reaches
//! is filled through pinned bounce buffers, while the next chunk is received into another one.

#![forbid(unsafe_code)]

mod domain;
mod engine;
mod error;
mod keys;
mod link;
mod listener;
pub mod protocol;
mod receive;
mod spins;

pub use domain::{Config, Domain};
pub use error::{SystemError, TcpError};
pub use keys::{Registration, RemoteKey};
pub use link::{Link, Posting};
pub use listener::{Closer, Listener};
pub use protocol::{Invitations, Request};
pub use receive::{PayloadCounts, Receive};
