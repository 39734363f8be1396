//! Rings in memory that two processes of a host share: no system call on the way of a datagram.
//!
//! Each direction between two links has a ring, made by its sender ([`ring`]). Links find each
//! other by boot id and address ([`meet`]). As with UDP, datagrams for which there is no room, or no link
//! at the address, are lost. The peers are processes of the same user, and trusted with no more than
//! senders of UDP: nothing that one writes makes this end crash or wait.

mod meet;
mod ring;

use super::{Arrival, Link, Peer, QpnPart, Seal, Sent, TrainLimits, UdpConfig, named, port};
use crate::{LinkError, Mtu};
use meet::Purpose;
use ring::{Consumer, Producer, RING, Record};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use warpverbs_wire::Envelope;

/// Bytes of a train: little enough that its receiver begins while the next is written.
const TRAIN: usize = 1 << 15;
/// Between looks at the sockets.
const UPKEEP: Duration = Duration::from_millis(1);
/// The same in calls of `receive`, for clocks that stand still.
const CALLS: u32 = 4096;
/// A peer that has not greeted by then is cut off.
const GREETING: Duration = Duration::from_secs(1);
/// Peers that send to this link at most, greeted or not.
const MOST: usize = 1024;
/// Ports tried where any will do.
const PORTS: u32 = 64;

/// A ring to a peer.
#[derive(Debug)]
struct Outgoing {
    to: SocketAddr,
    /// Of the QP numbers, if several NICs have the peer's address.
    part: Option<QpnPart>,
    socket: OwnedFd,
    ring: Producer,
}

impl Outgoing {
    fn leads_to(&self, to: SocketAddr, part: QpnPart) -> bool {
        self.to == to && self.part.is_none_or(|own| own == part)
    }
}

/// A ring from a peer.
#[derive(Debug)]
struct Incoming {
    from: SocketAddr,
    socket: OwnedFd,
    ring: Consumer,
    /// The peer is gone: the ring goes when it is empty.
    ended: bool,
    /// The peer wrote what it may not: the ring goes.
    spoilt: bool,
}

/// A peer that has not greeted yet.
#[derive(Debug)]
struct Guest {
    socket: OwnedFd,
    until: Duration,
}

/// One end of all rings of an address.
#[derive(Debug)]
pub struct Shm {
    purpose: Purpose,
    local: SocketAddr,
    part: Option<QpnPart>,
    max_mtu: Mtu,
    listener: OwnedFd,
    /// Datagrams carry an ICRC, though nothing here damages them.
    icrc: bool,
    /// The one used last is in front.
    outgoing: Vec<Outgoing>,
    /// Addresses at which no link answered, each with the time until which that is assumed.
    absent: FxHashMap<(SocketAddr, QpnPart), Duration>,
    /// Addresses at which a link has answered.
    ended: FxHashSet<(SocketAddr, Option<QpnPart>)>,
    incoming: Vec<Incoming>,
    guests: Vec<Guest>,
    /// The next look at the sockets.
    upkeep: Duration,
    calls: u32,
    train: Box<[u8]>,
}

impl Shm {
    /// Takes an address, which has to be free of shared-memory links in this network namespace; one
    /// that is shared needs a free part of the QP numbers only.
    ///
    /// # Errors
    /// "Any" as address; what the system refuses, such as an address in use.
    pub fn bind(config: &UdpConfig) -> Result<Self, LinkError> {
        match config.shared {
            false => Self::open(config, Purpose::Datagrams, || {
                listen(config.bind).map(|(at, fd)| (at, None, fd))
            }),
            true => Self::open(config, Purpose::Datagrams, || share(config.bind)),
        }
    }

    /// The place of `part` at an address that is shared, if there is one.
    pub(super) fn bind_part(config: &UdpConfig, part: Option<QpnPart>) -> Result<Self, LinkError> {
        Self::bind_for(Purpose::Datagrams, config, part)
    }

    /// Rings beside the UDP link of `part` at an address: they show the peers on this host that the
    /// link looks at its socket, and the link the same of them.
    pub(super) fn beside_udp(at: SocketAddr, part: Option<QpnPart>) -> Result<Self, LinkError> {
        Self::bind_for(Purpose::Looks, &UdpConfig::at(at), part)
    }

    fn bind_for(
        purpose: Purpose,
        config: &UdpConfig,
        part: Option<QpnPart>,
    ) -> Result<Self, LinkError> {
        let at = config.bind;
        // The previous owner of the part may be ending just now.
        let end = Instant::now() + if part.is_some() { port::LIMIT } else { Duration::ZERO };
        let listener = || named::until(end, || purpose.listener(at, part));
        Self::open(config, purpose, || Ok((at, part, listener()?)))
    }

    fn open(
        &UdpConfig { bind, max_mtu, .. }: &UdpConfig,
        purpose: Purpose,
        listening: impl FnOnce() -> io::Result<(SocketAddr, Option<QpnPart>, OwnedFd)>,
    ) -> Result<Self, LinkError> {
        if bind.ip().is_unspecified() || bind.ip().is_multicast() {
            return Err(LinkError::UnspecifiedAddress { addr: bind });
        }
        let (local, part, listener) = listening().map_err(|error| LinkError::open(bind, &error))?;
        Ok(Self {
            purpose,
            local,
            part,
            max_mtu: max_mtu.unwrap_or(Mtu::B4096),
            listener,
            icrc: false,
            outgoing: Vec::new(),
            absent: FxHashMap::default(),
            ended: FxHashSet::default(),
            incoming: Vec::new(),
            guests: Vec::new(),
            upkeep: Duration::ZERO,
            calls: 0,
            train: vec![0; Envelope::MAX_DATAGRAM].into(),
        })
    }

    /// Whether datagrams to QPs of `part` reach a ring of `to`: then it is the first. If no link was
    /// there, tries again after `pause`.
    #[inline]
    pub(super) fn reaches(
        &mut self,
        now: Duration,
        to: SocketAddr,
        part: QpnPart,
        pause: Duration,
    ) -> bool {
        self.outgoing.first().is_some_and(|first| first.leads_to(to, part))
            || self.finds(now, to, part, pause)
    }

    fn finds(&mut self, now: Duration, to: SocketAddr, part: QpnPart, pause: Duration) -> bool {
        if let Some(found) = self.outgoing.iter().position(|peer| peer.leads_to(to, part)) {
            self.outgoing.swap(0, found);
            return true;
        }
        if self.absent.get(&(to, part)).is_some_and(|until| now < *until) {
            return false;
        }
        let connected = self.connect(to, None).or_else(|_| self.connect(to, Some(part)));
        match connected {
            Ok(outgoing) => {
                tracing::info!(%to, "link by shared memory");
                self.absent.remove(&(to, part));
                self.ended.remove(&(to, outgoing.part));
                self.outgoing.insert(0, outgoing);
                true
            }
            Err(error) => {
                tracing::debug!(%to, %error, "no link by shared memory");
                if self.absent.len() == MOST {
                    self.absent.clear();
                }
                self.absent.insert((to, part), now + pause);
                false
            }
        }
    }

    fn connect(&self, to: SocketAddr, part: Option<QpnPart>) -> io::Result<Outgoing> {
        let socket = self.purpose.reach(to, part)?;
        let (ring, memory) = Producer::new()?;
        meet::greet(&socket, self.local, memory)?;
        Ok(Outgoing { to, part, socket, ring })
    }

    /// The own end, in words.
    pub(super) fn place(&self) -> String {
        match self.part {
            None => format!("shared memory at {}", self.local),
            Some(part) => format!("shared memory at {}, place {}", self.local, part.index()),
        }
    }

    /// How many peers it sends to.
    pub(super) fn peers(&self) -> usize {
        self.outgoing.len()
    }

    /// From time to time: who has come, who has greeted, who is gone.
    fn look_after_sockets(&mut self, now: Duration) {
        self.calls += 1;
        if now < self.upkeep && self.calls < CALLS {
            return;
        }
        (self.upkeep, self.calls) = (now + UPKEEP, 0);
        let guests = self.guests.iter().map(|guest| &guest.socket);
        let incoming = self.incoming.iter().map(|incoming| &incoming.socket);
        let sockets = [&self.listener].into_iter().chain(guests).chain(incoming);
        let outgoing = self.outgoing.iter().map(|outgoing| &outgoing.socket);
        let mut ready = meet::ready(sockets.chain(outgoing)).into_iter();
        let mut is_ready = || ready.next().unwrap_or(false);
        let callers = is_ready();
        let guests = std::mem::take(&mut self.guests);
        let guests: Vec<_> = guests.into_iter().map(|guest| (is_ready(), guest)).collect();
        // Nothing is said after the greeting: what can be read is the end.
        self.incoming.iter_mut().for_each(|incoming| incoming.ended |= is_ready());
        let Self { outgoing, ended, .. } = self;
        outgoing.retain(|peer| {
            let has_ended = is_ready();
            if has_ended {
                tracing::debug!(to = %peer.to, "the peer's link has ended");
                if ended.len() == MOST {
                    ended.clear();
                }
                ended.insert((peer.to, peer.part));
            }
            !has_ended
        });
        for (ready, guest) in guests {
            self.welcome(now, ready, guest);
        }
        if callers {
            self.accept(now);
        }
    }

    /// Begins a connection to the process that has the QPs of `part` at `to`. Whether it is on this host.
    pub(super) fn meet_at(
        &mut self,
        now: Duration,
        to: SocketAddr,
        part: QpnPart,
        pause: Duration,
    ) -> bool {
        let ended = [None, Some(part)].map(|part| self.ended.remove(&(to, part)));
        if ended.contains(&true) {
            self.absent.remove(&(to, part));
        }
        self.reaches(now, to, part, pause)
    }

    /// State of the peer that has QPs of `part` at `to`, as far as it is known. A successor is
    /// found at most once a `pause`.
    pub(super) fn peer_at(
        &mut self,
        now: Duration,
        to: SocketAddr,
        part: QpnPart,
        pause: Duration,
    ) -> Peer {
        // Its answer may lie in a ring that was not accepted yet: the next call of `receive` does.
        self.calls = CALLS;
        if self.reaches(now, to, part, pause)
            && let Some(outgoing) = self.outgoing.first()
        {
            return Peer::Looked(outgoing.ring.looks());
        }
        let was = |part| self.ended.contains(&(to, part));
        let ended = was(None) || was(Some(part));
        let mut unread = self.incoming.iter_mut().filter(|peer| peer.from == to);
        match ended && unread.all(|peer| peer.ring.is_empty()) {
            true => Peer::Ended,
            false => Peer::Unknown,
        }
    }

    /// The UDP link was looked at, and has `found` something there.
    pub(super) fn tend(&mut self, now: Duration, found: bool) {
        self.look_after_sockets(now);
        if !found {
            self.incoming.iter_mut().for_each(|peer| peer.ring.count_look());
        }
        self.incoming.retain(|peer| !peer.ended);
    }

    fn accept(&mut self, now: Duration) {
        while self.incoming.len() + self.guests.len() < MOST {
            match meet::accept(&self.listener) {
                Ok(socket) => self.welcome(now, true, Guest { socket, until: now + GREETING }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::warn!("a process of another user wants to link");
                }
                Err(_) => return,
            }
        }
    }

    /// A guest that greets becomes a peer.
    fn welcome(&mut self, now: Duration, ready: bool, guest: Guest) {
        let greeting = if ready { meet::greeting(&guest.socket) } else { Ok(None) };
        let ring = match greeting {
            Ok(None) if now < guest.until => return self.guests.push(guest),
            Ok(None) => Err(io::ErrorKind::TimedOut.into()),
            Ok(Some((from, memory))) => Consumer::new(&memory).map(|ring| (from, ring)),
            Err(error) => Err(error),
        };
        match ring {
            Ok((from, ring)) => {
                let (socket, ended, spoilt) = (guest.socket, false, false);
                self.incoming.push(Incoming { from, socket, ring, ended, spoilt });
            }
            Err(error) => {
                tracing::warn!(%error, "refused a process that does not speak the link's protocol")
            }
        }
    }
}

fn listen(bind: SocketAddr) -> io::Result<(SocketAddr, OwnedFd)> {
    if bind.port() != 0 {
        return Ok((bind, Purpose::Datagrams.listener(bind, None)?));
    }
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..PORTS {
        // The range for private use.
        let local = SocketAddr::new(bind.ip(), rand::random_range(0xc000..=0xffff));
        match Purpose::Datagrams.listener(local, None) {
            Ok(listener) => return Ok((local, listener)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first free part at an address.
fn share(bind: SocketAddr) -> io::Result<(SocketAddr, Option<QpnPart>, OwnedFd)> {
    let (bind, _free) = match bind.port() {
        0 => listen(bind).map(|(at, listener)| (at, Some(listener)))?,
        _ => (bind, None),
    };
    let mut last = io::ErrorKind::AddrInUse.into();
    for part in (0..QpnPart::COUNT).map(QpnPart::new) {
        match Purpose::Datagrams.listener(bind, Some(part)) {
            Ok(listener) => return Ok((bind, Some(part), listener)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Link for Shm {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn max_mtu(&self) -> Mtu {
        self.max_mtu
    }

    fn describe(&self) -> String {
        match self.absent.keys().next() {
            None => self.place(),
            Some((to, _)) => format!(
                "{}; no process of this user has a link by shared memory at {to} in this network \
                 namespace",
                self.place()
            ),
        }
    }

    fn qpn_part(&self) -> Option<QpnPart> {
        self.part
    }

    /// Datagrams that connections do not count, such as acknowledgements, have a quarter of the
    /// ring.
    fn window_bytes(&self) -> usize {
        RING as usize / 4 * 3
    }

    fn train_limits(&self) -> TrainLimits {
        TrainLimits { segments: 64, bytes: TRAIN }
    }

    fn polls_memory(&self) -> bool {
        true
    }

    fn keep_icrc(&mut self) {
        self.icrc = true;
    }

    fn wants_icrc(&mut self, _now: Duration, _to: SocketAddr, _part: QpnPart) -> bool {
        self.icrc
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        let part = QpnPart::of_packet(train);
        let reached = self.reaches(now, to, part, UPKEEP);
        let Some(outgoing) = self.outgoing.first_mut().filter(|_| reached) else {
            return Sent::Lost(io::ErrorKind::HostUnreachable);
        };
        let record = Record { len: train.len(), segment, sealed: self.icrc };
        match outgoing.ring.push(record, train) {
            Ok(true) => Sent::Taken,
            Ok(false) => Sent::Lost(io::ErrorKind::OutOfMemory),
            Err(broken) => {
                tracing::warn!(%to, %broken, "the peer spoilt a ring");
                self.outgoing.swap_remove(0);
                self.absent.insert((to, part), now + UPKEEP);
                Sent::Lost(io::ErrorKind::ConnectionReset)
            }
        }
    }

    fn meet(&mut self, now: Duration, to: SocketAddr, part: QpnPart) {
        self.meet_at(now, to, part, UPKEEP);
    }

    fn peer(&mut self, now: Duration, to: SocketAddr, part: QpnPart) -> Peer {
        self.peer_at(now, to, part, UPKEEP)
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.look_after_sockets(now);
        let Self { incoming, train, .. } = self;
        let (mut datagrams, mut over) = (0, false);
        for peer in incoming {
            match peer.ring.pop(train) {
                Ok(Some(Record { len, segment, sealed })) => {
                    let from = peer.from;
                    for (id, bytes) in train[..len].chunks(segment).enumerate() {
                        let seal = if sealed { Seal::Exact(id as u16) } else { Seal::Absent };
                        sink(Arrival { from, bytes, seal });
                        datagrams += 1;
                    }
                }
                Ok(None) => {
                    peer.ring.count_look();
                    over |= peer.ended;
                }
                Err(broken) => {
                    tracing::warn!(from = %peer.from, %broken, "the peer spoilt a ring");
                    (peer.spoilt, over) = (true, true);
                }
            }
        }
        if over {
            let stays = |peer: &mut Incoming| !(peer.ended && peer.ring.is_empty());
            self.incoming.retain_mut(|peer| !peer.spoilt && stays(peer));
        }
        datagrams
    }
}
