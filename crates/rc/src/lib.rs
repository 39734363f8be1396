//! The reliable connection service, for the software NIC and for simulations of it, without I/O: no
//! socket, no clock, no thread, no access to registered memory.
//!
//! ```text
//!                 post ─► requester ──► poll_transmit ─► packets
//!  poll_completion ◄──┐      ▲
//!                     └── completer ◄── handle_packet ◄─ responses
//!  Host: keys,            responder ◄── handle_packet ◄─ requests
//!  receives, atomics ◄──────┘   └─────► poll_transmit ─► responses
//! ```
//!
//! * [`Connection`] is one end. Its documentation says which methods to call when.
//! * Payload never passes through here: a [`Transmit`] names bytes of a posted request or of a
//!   region, a [`Place`] says where the payload of an arrived packet belongs.
//! * [`Host`] is asked about keys, receives and atomics, so that they are checked and counted in
//!   one place, whatever the link.
//! * Time is an argument, [`Instant`]; the next timer is [`Connection::poll_timeout`].
//! * All memory is allocated by [`Connection::new`].
//!
//! Which rules of the specification are followed, and where: `docs/protocol.md`. A mark like
//! `[req.fence]` in a comment marks the code that implements that rule.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod completer;
mod config;
mod connection;
mod host;
mod output;
mod request;
mod requester;
mod responder;
mod state;
mod time;

pub use config::{AckTimeout, Attribute, Config, ConfigError};
pub use connection::{Connection, StartError};
pub use host::{Atomic, AtomicOp, Denied, Host, Need, Receive};
pub use output::{Completion, Payload, Place, Received, Stats, Transmit};
pub use request::{MAX_MESSAGE, PostError, Request, WrId};
pub use state::{Diagram, Event, Refused, State, TRANSITIONS, Transition};
pub use time::{Instant, Peer};
pub use warpverbs_rdma::{Op, ReceivedKind, Remote, Status};
