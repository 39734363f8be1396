//! The way to the peer of a QP.

use std::net::SocketAddr;

/// How the peer is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// The peer is a QP of the same NIC.
    #[default]
    Loopback,
    /// The peer is reached by the NIC's link, at this address. The port is used only for sending:
    /// packets that arrive are identified by IP address and QP number.
    Network(SocketAddr),
    /// The QP is proxied by another device, which knows the peer.
    Proxied,
}
