//! Carriers of datagrams, for the software NIC and others of its kind.
//!
//! A link moves the payload of UDP datagrams: BTH to ICRC. Addresses and the rest of the headers
//! around are its own; the NIC seals and checks the ICRC over them.
#![forbid(unsafe_code)]

#[cfg(feature = "udp")]
mod auto;
mod cable;
mod config;
pub mod descriptors;
mod error;
mod fault;
#[cfg(feature = "udp")]
mod interface;
#[cfg(feature = "udp")]
mod named;
mod part;
mod pcap;
mod plan;
#[cfg(feature = "udp")]
mod port;
#[cfg(feature = "udp")]
mod shm;
#[cfg(feature = "udp")]
mod udp;
#[cfg(feature = "udp")]
mod udp_option;

#[cfg(feature = "udp")]
pub use auto::Auto;
pub use cable::{Cable, cable};
pub use config::LinkConfig;
#[cfg(feature = "udp")]
pub use config::{LinkKind, UnknownLink};
pub use error::LinkError;
pub use fault::Faulty;
pub use part::QpnPart;
pub use pcap::Pcap;
pub use plan::{Chance, FaultPlan, PlanError};
#[cfg(feature = "udp")]
pub use shm::Shm;
#[cfg(feature = "udp")]
pub use udp::{Udp, UdpConfig};
#[cfg(feature = "udp")]
pub use udp_option::{NoChecksum, set_no_checksum};

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use warpverbs_rc::Peer;
pub use warpverbs_rdma::{Mtu, ROCE_PORT};

/// Outcome for datagrams handed to a link.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainLimits {
    /// Datagrams.
    pub segments: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

/// How the ICRC of a datagram is to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// It covers an IPv4 header with this identification.
    Exact(u16),
    /// It covers an identification that the link does not show.
    HiddenId,
    /// The ICRC's four bytes are not computed: shared memory does not damage datagrams.
    Absent,
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The sender's address.
    pub from: SocketAddr,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
    /// The way to check its ICRC.
    pub seal: Seal,
}

/// Carries datagrams. No method waits. `now` is time on the NIC's clock.
pub trait Link: Send + fmt::Debug {
    /// The link that this one wraps: methods that are not its own are those of that link.
    fn inner(&self) -> Option<&dyn Link> {
        None
    }

    /// The same, to be changed.
    fn inner_mut(&mut self) -> Option<&mut dyn Link> {
        None
    }

    /// The address that peers send to; never "any".
    fn local(&self) -> SocketAddr;

    /// The largest path MTU that fits its packets.
    fn max_mtu(&self) -> Mtu;

    /// Bytes that a receiver like this end can hold: a connection has no more under way.
    fn window_bytes(&self) -> usize {
        self.inner().map_or(1 << 20, |inner| inner.window_bytes())
    }

    /// The most that [`send`](Self::send) takes at a time.
    fn train_limits(&self) -> TrainLimits {
        let one = TrainLimits { segments: 1, bytes: warpverbs_wire::Envelope::MAX_DATAGRAM };
        self.inner().map_or(one, |inner| inner.train_limits())
    }

    /// The link and the means it has used, in words for users.
    fn describe(&self) -> String {
        match self.inner() {
            Some(inner) => inner.describe(),
            None => format!("a link at {}", self.local()),
        }
    }

    /// Whether a poll only reads memory, and asks nothing of the system.
    fn polls_memory(&self) -> bool {
        self.inner().is_some_and(|inner| inner.polls_memory())
    }

    /// From now on every datagram carries an ICRC: it may be damaged or looked at before it is
    /// sent.
    fn keep_icrc(&mut self) {
        if let Some(inner) = self.inner_mut() {
            inner.keep_icrc();
        }
    }

    /// The part of the QP numbers whose packets arrive here; `None`: all.
    fn qpn_part(&self) -> Option<QpnPart> {
        self.inner()?.qpn_part()
    }

    /// Whether datagrams to QPs of a part at `to` must carry an ICRC. Otherwise its bytes are zero.
    fn wants_icrc(&mut self, now: Duration, to: SocketAddr, part: QpnPart) -> bool {
        self.inner_mut().is_none_or(|inner| inner.wants_icrc(now, to, part))
    }

    /// Sends datagrams of `segment` bytes each to QPs of one part, which lie back to back in
    /// `train`; the last may be shorter. Their IPv4 identifications are 0, 1, 2 and so on, and they
    /// are not fragmented.
    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent;

    /// Hands over some of the datagrams that arrived; how many, empty ones as well. 0 means that
    /// there are no more for now.
    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize;

    /// A connection begins, to the peer that has QPs of a part at `to`: it is another one than any
    /// that has ended there.
    fn meet(&mut self, now: Duration, to: SocketAddr, part: QpnPart) {
        if let Some(inner) = self.inner_mut() {
            inner.meet(now, to, part);
        }
    }

    /// State of the peer that has QPs of a part at `to`, as far as it is known. Everything that was
    /// given to [`send`](Self::send) has left by now.
    fn peer(&mut self, now: Duration, to: SocketAddr, part: QpnPart) -> Peer {
        self.inner_mut().map_or(Peer::Unknown, |inner| inner.peer(now, to, part))
    }

    /// When the link itself has something to do next.
    fn next_event(&self) -> Option<Duration> {
        self.inner()?.next_event()
    }
}

impl Link for Box<dyn Link> {
    fn inner(&self) -> Option<&dyn Link> {
        Some(&**self)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Link> {
        Some(&mut **self)
    }

    fn local(&self) -> SocketAddr {
        (**self).local()
    }

    fn max_mtu(&self) -> Mtu {
        (**self).max_mtu()
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        (**self).send(now, to, train, segment)
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        (**self).receive(now, sink)
    }
}
