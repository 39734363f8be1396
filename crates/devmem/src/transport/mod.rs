//! Messages, one-sided reads and writes, and notifications over several TCP sockets.
//!
//! ```text
//! Endpoint ─ register ─▶ Registration ─ remote ─▶ RemoteMemory ──(to the peer)──▶ write, read
//!    ├─ listen ─▶ Listener ─ accept ─▶ Connection ◀── isend, irecv, write, read, notify
//!    └─ connect ─────────────────────▶     │              └─▶ Operation ─▶ test, wait
//!                                          ├─ engine: sockets, bounce buffers, copies
//!                                          └─ protocol: frames, without I/O
//! ```
//!
//! Payload for host memory is received straight into place. Memory that only a copy engine reaches
//! is filled through pinned bounce buffers, while the next chunk is received into another one.

mod connection;
mod device;
mod endpoint;
mod engine;
mod error;
mod keys;
mod listener;
pub mod protocol;
mod queues;
mod spins;

pub use connection::{Connection, Operation, Posting};
pub use device::{BoundQueues, DeviceMemory, Payload, PayloadSockets, Receive};
pub use endpoint::{Config, Endpoint};
pub use error::{SystemError, TransportError};
pub use keys::{Registration, RemoteMemory};
pub use listener::{Closer, Listener};
pub use protocol::Invitations;
pub use queues::{QUEUES_ENV, QueueChoice, Queues, UnknownQueues};
