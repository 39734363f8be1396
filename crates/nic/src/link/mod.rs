//! What carries datagrams between NICs.
//!
//! A link moves the payload of UDP datagrams: BTH to ICRC. Addresses and the rest of the headers
//! around are its own; the NIC seals and checks the ICRC over them.

mod cable;
mod fault;
#[cfg(feature = "udp")]
mod interface;
mod open;
mod pcap;
mod plan;
#[cfg(feature = "udp")]
mod udp;

pub use cable::{Cable, cable};
pub use fault::Faulty;
pub use pcap::Pcap;
pub use plan::{Chance, FaultPlan, PlanError};
#[cfg(feature = "udp")]
pub use udp::{Udp, UdpConfig};

use crate::Mtu;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use warpverbs_rdma::ROCE_PORT;

/// What became of datagrams handed to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// They are on their way, as far as is known.
    Taken,
    /// The link is full: offer them again.
    Blocked,
    /// They are lost.
    Lost(io::ErrorKind),
}

/// How much one call of [`Link::send`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainLimits {
    /// Datagrams.
    pub segments: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

/// Carries datagrams. No method waits. `now` is time on the NIC's clock.
pub trait Link: Send + fmt::Debug {
    /// The address that peers send to; never "any".
    fn local(&self) -> SocketAddr;

    /// The largest path MTU that fits its packets.
    fn max_mtu(&self) -> Mtu;

    /// Bytes that a receiver like this end can hold: a connection has no more under way.
    fn window_bytes(&self) -> usize {
        1 << 20
    }

    /// What [`send`](Self::send) takes at a time.
    fn train_limits(&self) -> TrainLimits {
        TrainLimits { segments: 1, bytes: warpverbs_wire::Envelope::MAX_DATAGRAM }
    }

    /// Whether arriving datagrams may have had an IPv4 identification other than 0, which the ICRC
    /// covers and this link does not show.
    fn hides_ip_id(&self) -> bool {
        false
    }

    /// Sends datagrams of `segment` bytes each, which lie back to back in `train`; the last may be
    /// shorter. Their IPv4 identifications are 0, 1, 2 and so on, and they are not fragmented.
    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent;

    /// Hands over some of the datagrams that arrived, with the address of their sender; how many,
    /// empty ones as well. 0 means that there are no more for now.
    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(SocketAddr, &[u8])) -> usize;

    /// When the link itself has something to do next.
    fn next_event(&self) -> Option<Duration> {
        None
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn local(&self) -> SocketAddr {
        (**self).local()
    }

    fn max_mtu(&self) -> Mtu {
        (**self).max_mtu()
    }

    fn window_bytes(&self) -> usize {
        (**self).window_bytes()
    }

    fn train_limits(&self) -> TrainLimits {
        (**self).train_limits()
    }

    fn hides_ip_id(&self) -> bool {
        (**self).hides_ip_id()
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        (**self).send(now, to, train, segment)
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(SocketAddr, &[u8])) -> usize {
        (**self).receive(now, sink)
    }

    fn next_event(&self) -> Option<Duration> {
        (**self).next_event()
    }
}

/// What a NIC is connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkConfig {
    /// Nothing: QPs reach those of the same NIC.
    #[default]
    Loopback,
    /// Other hosts, by UDP. QPs of the same NIC are still reached without it.
    #[cfg(feature = "udp")]
    Udp(UdpConfig),
}
