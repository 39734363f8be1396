//! How two programs connect: hello, frames, deadlines, keepalives, and bounds on what either can cost the
//! other.
//!
//! A program that listens must survive unauthenticated connections, and a program that connects must
//! survive a peer that does not answer. The parts are separate, so that each crate uses those that it
//! needs:
//!
//! | part | contents |
//! |---|---|
//! | [`Hello`] | magic number and version that a connection begins with; reports another program and
//! another version by different errors |
//! | [`Frames`], [`frame`] | messages as a `u32` length, little-endian, and postcard; no I/O. An announced size takes no memory |
//! | [`Deadline`], [`Timed`], [`resolve`], [`connect`] | blocking calls on streams and names, each of which ends |
//! | [`listen`], [`Door`] | a TCP listener, and accepting while descriptors are short |
//! | [`gives_way`] | which connection is closed when too many have not authenticated |
//! | [`Alive`] | keepalives to a silent peer |
//! | [`Wake`], [`poll`] | waiting for descriptors, and ending such a wait from another thread |
//! | [`unix`] | sockets between processes of a host, and the descriptors that travel by them |
//! | [`Connection`], [`Listener`] | all of this for two programs that send each other a [`Message`] at a time |
//!
//! Event loops keep their own connections and budgets per turn; what differs between them is there, not here.
//!
//! A [`Connection`] begins with a preamble from both ends: six bytes of name, the version as `u16`, and the
//! sender's [`Role`]. No call of it blocks in the system, so that a caller may drive a NIC while it waits. A
//! [`Listener`] goes on accepting until a client has shown the right preamble.
//!
//! Not here: encryption and authentication.
#![forbid(unsafe_code)]

mod alive;
mod connection;
mod deadline;
mod door;
mod error;
mod frames;
mod guests;
mod hello;
mod reach;
mod resolve;
mod stream;
pub mod unix;
mod wake;

pub use alive::{Alive, Due};
pub use connection::{Connection, LONGEST, Message, PREAMBLE, Role, Stream};
pub use deadline::Deadline;
pub use door::{Arrival, Door, dismiss, is_out_of_descriptors, listen};
pub use error::{MeetError, printable};
pub use frames::{FrameError, Frames, decode, frame};
pub use guests::{Guest, gives_way};
pub use hello::{Hello, HelloError};
pub use reach::Listener;
pub use resolve::{ResolveError, resolve};
pub use stream::{Timed, connect, prepare};
pub use wake::{Wake, poll};
