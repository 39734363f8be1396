//! TCP sockets of `warpverbs-tcp`: for peers of other hosts that no NIC reaches.
//!
//! ```text
//! initiator                                   target
//!   Call Tcp       ── control connection ──▶  ends the connections of this control connection, if
//!                                             there are any; listens, from the first such call on
//!                  ◀───── port, secret        a secret for one connection
//!   sockets, secret ────────────────────────▶ accepts; a thread serves the connection
//!   Call TcpKey    ── control connection ──▶  the memory's key
//!   write, read     ────────────────────────▶ checks key and bounds, places bytes
//!   Call Tcp, secret ─ control connection ─▶  ends that connection
//!                  ◀───── nothing is placed or read any more
//! ```
//!
//! The initiator moves bytes while its transfers are looked at, so it needs no thread.
//!
//! A target that was lost ends what is left of a connection before it answers the first question of
//! another control connection of this agent (`Serving::fence`), so nothing that comes later is
//! overwritten.

mod server;
mod sockets;
mod work;

pub(crate) use server::Serving;
pub(crate) use sockets::{Sockets, Tcp};
pub(crate) use work::tcp;
