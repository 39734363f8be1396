//! The control protocol of agents: one TCP connection from each agent to each peer whose memory it uses,
//! and one thread for each agent, which serves them all.
//!
//! ```text
//! A, whose transfers touch memory of B          B
//!   Hello, Auth                 ──────▶
//!                               ◀──────   Welcome, Ready: what is registered, room for notifications
//!   Notify                      ──────▶   into the inbox
//!                               ◀──────   Accepted; Credit when one was taken
//!                               ◀──────   Revoke: memory was deregistered
//!   Revoked, once A copies nothing there ─▶   the memory is given up
//! ```
//! Both ends send a keepalive (Ping, Pong) to a silent other end. A connection ends when the peer or its
//! agent has ended. A connection is closed only after the last copy by which its maker touches the
//! other's memory.
//!
//! The loop handles connections and frames. It sees the agent as [`Services`], a peer as [`Remote`], a
//! transfer as [`Watched`]. Only `frame`, `handshake` and `session` know the format of messages.

mod connect;
mod engine;
mod frame;
mod handshake;
mod inbox;
mod link;
mod remote;
mod services;
mod session;
mod shared;
mod streams;

pub(crate) use connect::{connect, fetch, load};
pub(crate) use engine::start;
pub(crate) use frame::{Event, Frame, Longest, Service};
pub use inbox::Notification;
pub(crate) use link::{Link, LinkId, Receipt, Revoked, ended, lost};
pub(crate) use remote::{Asked, Remote};
pub(crate) use services::Services;
pub(crate) use shared::{Control, Watched, is_alive};
pub(crate) use streams::End;

#[cfg(test)]
pub(crate) use {
    connect::{Blocking, Wanted, ask, establish, make},
    handshake::Key,
    inbox::MOST_WAITING,
    shared::Identity,
};
