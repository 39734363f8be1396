//! Messages, one-sided reads and writes, and notifications over several TCP sockets.
//!
//! ```text
//! Domain ─ register ─▶ RegisteredRegion ─ remote ─▶ RemoteKey ──(to the peer)──▶ write, read
//!    ├─ listen ─▶ Listener ─ accept ─▶ Link ◀── isend, irecv, write, read, notify
//!    └─ connect ─────────────────────▶     │              └─▶ Request ─▶ test, wait
//!                                          ├─ engine: sockets, bounce buffers, copies
//!                                          └─ protocol: frames, without I/O
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//! use warpverbs_mem::{Access, HostBuf};
//! use warpverbs_tcp::{Config, Domain, RemoteKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let timeout = Duration::from_secs(10);
//! let domain = Domain::new(Config::default().sockets(3))?;
//! let link = domain.connect("10.0.0.1:18519".parse()?, timeout)?;
//! let memory = HostBuf::region(1 << 20)?;
//! let theirs = RemoteKey::from_bytes(&link.wait_notification(timeout)?)?;
//! link.write(&memory, theirs)?;
//! link.notify(b"written")?; // arrives after the write
//! let ours = domain.register(&memory, Access::REMOTE_READ)?;
//! link.notify(&ours.remote().to_bytes())?; // the peer can read it now
//! let sent = link.isend(&memory)?;
//! link.wait(sent, timeout)?;
//! link.close(timeout)?;
//! # Ok(())
//! # }
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
pub use keys::{RegisteredRegion, RemoteKey};
pub use link::{Link, Posting};
pub use listener::{Closer, Listener};
pub use protocol::{Invitations, Request};
pub use receive::{PayloadCounts, Receive};
