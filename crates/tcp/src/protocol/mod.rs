//! The protocol without I/O: no socket, no clock, no thread, no access to memory.
//!
//! ```text
//!             post ──▶ ┌──────────┐ ──▶ next_frame ──▶ header, source of the payload
//!             take ◀── │ Protocol │ ◀── sent
//!       poll_event ◀── │          │ ◀── feed ◀── header bytes
//!                      └──────────┘ ──▶ due ──▶ target of the payload
//!                                   ◀── taken, placed
//! ```
//!
//! Messages, writes, reads and notifications are [`Request`]s of one ledger. Payload never passes through here: [`Due`] says where received bytes belong, [`Payload`] where
//! bytes to be sent come from. [`Memory`] is asked about keys. All memory is bounded by what was
//! agreed in the handshake and by what this end has posted; a peer that breaks the protocol is a
//! [`PeerError`].

mod agreed;
mod error;
mod header;
mod hello;
mod incoming;
mod invitations;
mod ledger;
mod meeting;
mod outgoing;
mod ranges;
mod request;
mod sequence;
mod window;

pub use agreed::{
    Agreed, Framing, LEAST_CHUNK, LEAST_WINDOW, MOST_CHUNK, MOST_EAGER, MOST_NOTIFICATION,
    MOST_SOCKETS, OVERHEAD,
};
pub use error::{Cut, Goodbye, PeerError, PostError, Refusal};
pub use header::{HEADER, Header, Kind};
pub use hello::*;
pub use incoming::{Due, Memory, Target};
pub use invitations::{Admission, Invitations};
pub use ledger::{Event, Need, Protocol};
pub use meeting::{Meeting, Met};
pub use outgoing::{Frame, Payload, Source};
pub use request::{Failure, Op, Request};
