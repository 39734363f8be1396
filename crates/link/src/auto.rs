//! Shared memory to processes of this host, UDP to all others, at one address.

use super::shm::Shm;
use super::{Arrival, Link, Peer, QpnPart, Sent, TrainLimits, Udp, UdpConfig};
use crate::{LinkError, Mtu};
use std::net::SocketAddr;
use std::time::Duration;

/// Between two attempts to reach a peer by shared memory.
const PAUSE: Duration = Duration::from_millis(100);
/// For this long after the last datagram the socket is read at every poll,
const ACTIVE: Duration = Duration::from_millis(10);
/// and later at this interval.
const QUIET: Duration = Duration::from_micros(50);

/// Both links at an address.
#[derive(Debug)]
pub struct Auto {
    udp: Udp,
    shm: Shm,
    /// A peer was reached by shared memory.
    met: bool,
    /// Until when every poll reads the socket.
    active: Duration,
    /// When the socket is read next.
    ask: Duration,
}

impl Auto {
    /// Takes the address for both.
    ///
    /// # Errors
    /// As of [`Udp::bind`] and [`Shm::bind`].
    pub fn bind(config: &UdpConfig) -> Result<Self, LinkError> {
        let udp = Udp::bind(config)?;
        let at = UdpConfig { bind: udp.local(), ..*config };
        let shm = Shm::bind_part(&at, udp.qpn_part())?;
        Ok(Self { udp, shm, met: false, active: Duration::ZERO, ask: Duration::ZERO })
    }
}

impl Link for Auto {
    fn local(&self) -> SocketAddr {
        self.udp.local()
    }

    fn max_mtu(&self) -> Mtu {
        self.udp.max_mtu()
    }

    fn describe(&self) -> String {
        match (self.met, self.active.is_zero()) {
            (false, true) => format!("shared memory or UDP at {}", self.local()),
            (false, false) => self.udp.describe(),
            (true, true) => self.shm.place(),
            (true, false) => format!("{}, UDP to others", self.shm.place()),
        }
    }

    fn window_bytes(&self) -> usize {
        self.udp.window_bytes().min(self.shm.window_bytes())
    }

    fn train_limits(&self) -> TrainLimits {
        let (udp, shm) = (self.udp.train_limits(), self.shm.train_limits());
        let (segments, bytes) = (udp.segments.min(shm.segments), udp.bytes.min(shm.bytes));
        TrainLimits { segments, bytes }
    }

    fn polls_memory(&self) -> bool {
        self.active.is_zero()
    }

    fn keep_icrc(&mut self) {
        self.shm.keep_icrc();
    }

    fn qpn_part(&self) -> Option<QpnPart> {
        self.udp.qpn_part()
    }

    fn wants_icrc(&mut self, now: Duration, to: SocketAddr, part: QpnPart) -> bool {
        !self.shm.reaches(now, to, part, PAUSE) || self.shm.wants_icrc(now, to, part)
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        if self.shm.reaches(now, to, QpnPart::of_packet(train), PAUSE) {
            self.met = true;
            return self.shm.send(now, to, train, segment);
        }
        self.active = now + ACTIVE;
        self.udp.send(now, to, train, segment)
    }

    fn meet(&mut self, now: Duration, to: SocketAddr, part: QpnPart) {
        if !self.shm.meet_at(now, to, part, PAUSE) {
            self.udp.meet(now, to, part);
        }
    }

    fn peer(&mut self, now: Duration, to: SocketAddr, part: QpnPart) -> Peer {
        match self.shm.peer_at(now, to, part, PAUSE) {
            Peer::Unknown => self.udp.peer(now, to, part),
            known => known,
        }
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let received = self.shm.receive(now, sink);
        self.met |= received > 0;
        if now >= self.active && now < self.ask && self.shm.peers() > 0 {
            return received;
        }
        let datagrams = self.udp.receive(now, sink);
        if datagrams > 0 {
            self.active = now + ACTIVE;
        }
        self.ask = now + QUIET;
        received + datagrams
    }
}
