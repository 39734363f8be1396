//! QPs whose peer is on the network: each drives a connection (`warpverbs-rc`) instead of executing
//! its WQEs here.
//!
//! ```text
//! WQE ─► parse ─► post ─► connection ─► tx: payload gathered into the packet ─► link
//! link ─► rx: ICRC, source, partition, QPN ─► connection ─► payload to the checked range
//!                                                   └─► complete: reports to the engine
//! ```
//!
//! Payload that only a copy engine reaches goes through [bounce buffers](bounce); packets and
//! reports that depend on it then wait for copies.
//!
//! Requests of the peer are judged by [`host::Responder`], by the checks of `access.rs`, as in
//! loopback.

mod bounce;
mod burst;
mod complete;
mod datagram;
mod host;
mod post;
mod rx;
mod state;
mod tx;

use super::report::Report;
use super::tables::Tables;
use crate::engine::outcome::Refusal;
use crate::link::{Link, Peer, QpnPart};
use crate::objects::receive::Receives;
use crate::slots::{QpSlot, Slot};
use crate::stats::NetStats;
use arrayvec::ArrayVec;
use bounce::{Bounce, Pool};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use tx::Train;
use warpverbs_mlx5::wqe::Sge;
use warpverbs_rc::{Connection, Instant, WrId};

/// Batches received before a timer is processed: about what a socket holds.
const OVERDUE_LOOKS: usize = 64;
/// Slices without connections between two looks at the link.
const RESTS: u32 = 64;

/// Where the payload of a request lies. Keys are looked up again for every packet, so memory may go
/// away at any time.
#[derive(Debug)]
enum Outgoing {
    Bytes(Box<[u8]>),
    One(Sge),
    Many(Box<[Sge]>),
    /// Operands of an extended atomic; its result goes to the entry.
    Operands(Box<[u8]>, Sge),
}

impl Outgoing {
    /// Memory whose bytes are sent.
    fn sent(&self) -> &[Sge] {
        match self {
            Self::Operands(..) => &[],
            _ => self.sges(),
        }
    }

    /// Memory whose bytes are sent, or that a response goes to.
    fn sges(&self) -> &[Sge] {
        match self {
            Self::Bytes(_) => &[],
            Self::One(sge) | Self::Operands(_, sge) => std::slice::from_ref(sge),
            Self::Many(sges) => sges,
        }
    }
}

/// A request of the connection that is not yet complete.
#[derive(Debug)]
struct Posted {
    /// Index of its WQE.
    index: u64,
    outgoing: Outgoing,
    /// What it brings goes into its CQE.
    inline: bool,
}

/// The requests of a connection in the order in which they were posted. The identity of each is its
/// number, counted from the first of the connection.
#[derive(Debug, Default)]
struct Requests {
    list: VecDeque<Posted>,
    /// Number of the front.
    first: u64,
}

impl Requests {
    /// The identity of the next request.
    fn next(&self) -> WrId {
        WrId(self.first + self.list.len() as u64)
    }

    fn push(&mut self, posted: Posted) {
        self.list.push_back(posted);
    }

    #[inline]
    fn get(&self, id: WrId) -> Option<&Posted> {
        self.list.get(id.0.wrapping_sub(self.first) as usize)
    }

    /// Takes out the oldest `count` requests, which are complete. The index of the last one's WQE.
    #[inline]
    fn pop(&mut self, count: usize) -> Option<u64> {
        self.first += count as u64;
        let index = self.list.get(count.checked_sub(1)?)?.index;
        self.list.drain(..count);
        Some(index)
    }
}

/// The receive that a message of the peer goes into, or the one that was checked last.
#[derive(Debug, Default)]
pub(crate) struct CurrentReceive {
    index: u64,
    link: u16,
    sges: ArrayVec<Sge, 64>,
}

/// This end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    conn: Connection,
    /// Number of the QP.
    qpn: u32,
    requests: Requests,
    peer: SocketAddr,
    receive_in_use: CurrentReceive,
    /// Why a request of the peer ended the connection.
    refusal: Option<Refusal>,
    /// Once payload has lain in memory that only a copy engine reaches.
    bounce: Option<Box<Bounce>>,
    /// The earliest timer that is set for it.
    armed: Option<u64>,
    /// In the list of those to be served.
    queued: bool,
    /// Counted among those that are sending.
    sending: bool,
    /// In the list of those whose peers wait for receives.
    awaiting_receives: bool,
    /// The response to this READ or atomic of ours did not get into its memory.
    unplaced: Option<WrId>,
    /// The QP is in ERR, or will be as soon as the engine acts on the report.
    failed: bool,
}

/// All connections, and the link that they share.
pub(crate) struct Network {
    link: Option<Box<dyn Link>>,
    /// What is being built.
    train: Train,
    /// What the link did not take yet.
    blocked: VecDeque<Train>,
    /// Emptied trains, for their memory.
    spare: Vec<Vec<u8>>,
    pub(crate) conns: Connections,
    /// Slices in which there was no connection.
    rested: u32,
}

/// All connections, and what they share apart from the link. Receiving packets needs no more, so
/// the link can be borrowed beside it.
pub(crate) struct Connections {
    local: Option<SocketAddr>,
    /// Bytes under way of all connections, about: what a receiver like this end can hold.
    room: usize,
    /// The link sends several datagrams of one length at a time.
    trains: bool,
    /// Connections with packets under way or to be sent, which share it.
    sending: usize,
    hidden: rx::HiddenIds,
    /// By slot of the QP.
    ends: Vec<Option<Box<End>>>,
    live: usize,
    /// QPs of datagrams.
    pub(crate) datagram_qps: usize,
    /// Datagrams from QPs of this NIC to others of it.
    own: VecDeque<Vec<u8>>,
    /// The datagram that is being delivered, with its route header.
    datagram: Vec<u8>,
    /// Index of its receive.
    current_datagram: u64,
    /// Slots with something to complete or to send.
    queue: VecDeque<QpSlot>,
    timers: BinaryHeap<Reverse<(u64, QpSlot)>>,
    /// Those that have run out, while they are handled.
    due: Vec<(QpSlot, Peer)>,
    /// Connections still to be served in this slice.
    turn: usize,
    /// Slots whose peers have been sent an RNR NAK or zero credits.
    awaiting_receives: Vec<QpSlot>,
    /// Slots whose copies are to be looked after.
    bouncing: Vec<QpSlot>,
    /// Memory of bounce buffers.
    pool: Pool,
    pub(crate) stats: NetStats,
    /// What has happened since the engine looked last.
    pub(super) reports: Vec<Report>,
}

impl Network {
    pub(crate) fn new(link: Option<Box<dyn Link>>) -> Self {
        let conns = Connections {
            local: link.as_ref().map(|link| link.local()),
            room: link.as_ref().map_or(0, |link| link.window_bytes()),
            trains: link.as_ref().is_some_and(|link| link.train_limits().segments > 1),
            sending: 0,
            hidden: rx::HiddenIds::default(),
            ends: Vec::new(),
            live: 0,
            datagram_qps: 0,
            own: VecDeque::new(),
            datagram: Vec::new(),
            current_datagram: 0,
            queue: VecDeque::new(),
            turn: 0,
            timers: BinaryHeap::new(),
            due: Vec::new(),
            awaiting_receives: Vec::new(),
            bouncing: Vec::new(),
            pool: Pool::default(),
            stats: NetStats::default(),
            reports: Vec::new(),
        };
        let (train, blocked, spare) = (Train::default(), VecDeque::new(), Vec::new());
        Self { link, train, blocked, spare, conns, rested: 0 }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.conns.local
    }

    pub(crate) fn max_mtu(&self) -> Option<crate::Mtu> {
        self.link.as_ref().map(|link| link.max_mtu())
    }

    /// What the link is, if there is one.
    pub(crate) fn describe(&self) -> Option<String> {
        self.link.as_ref().map(|link| link.describe())
    }

    /// Whether every poll asks the system for datagrams.
    pub(crate) fn polls_system(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.polls_memory())
    }

    /// The next moment at which a connection or the link has something to do.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        let first = self.conns.timers.peek().map(|Reverse((due, _))| *due);
        let link = self.link.as_ref().and_then(|link| link.next_event());
        [first, link.map(crate::clock::nanos)].into_iter().flatten().min()
    }
}

impl Connections {
    fn end(&self, slot: QpSlot) -> Option<&End> {
        self.ends.get(slot.at())?.as_deref()
    }

    fn end_mut(&mut self, slot: QpSlot) -> Option<&mut End> {
        self.ends.get_mut(slot.at())?.as_deref_mut()
    }

    /// The QP in `slot` has something to complete or to send.
    fn enqueue(&mut self, slot: QpSlot) {
        if let Some(end) = self.end_mut(slot)
            && !end.queued
        {
            end.queued = true;
            self.queue.push_back(slot);
        }
    }

    /// Counts the connections that are sending, and gives this one its share of the room.
    fn share(&mut self, slot: QpSlot) {
        let Self { ends, sending, room, .. } = self;
        let Some(end) = ends.get_mut(slot.at()).and_then(Option::as_deref_mut) else { return };
        let sends = end.queued || end.conn.is_outstanding();
        if sends != end.sending {
            end.sending = sends;
            *sending = if sends { *sending + 1 } else { *sending - 1 };
        }
        end.conn.limit_bytes((*room / (*sending).max(1)) as u64);
    }

    /// Sets the timer of a connection, unless an earlier one is set: that one looks again.
    fn arm(&mut self, slot: QpSlot) {
        let Some(end) = self.end_mut(slot) else { return };
        let Some(due) = end.conn.poll_timeout().map(Instant::as_nanos) else { return };
        if end.armed.is_none_or(|armed| due < armed) {
            end.armed = Some(due);
            self.timers.push(Reverse((due, slot)));
        }
    }
}

impl Network {
    /// Whether this slice has nothing to do: there is no link, or no connection. Without connections the
    /// link is served now and then all the same: peers on this host see that this end has a
    /// processor, so its silence is not waited for.
    pub(super) fn rests(&mut self) -> bool {
        if self.link.is_none() {
            return true;
        }
        if self.conns.live > 0 || self.conns.datagram_qps > 0 || !self.blocked.is_empty() {
            return false;
        }
        self.rested = self.rested.wrapping_add(1);
        !self.rested.is_multiple_of(RESTS)
    }

    /// Before the connections are served: what has arrived if a timer has run out, timers, receives
    /// that peers wait for, and what the link did not take. Whether anything was achieved.
    pub(super) fn begin(&mut self, tables: &mut Tables, now: u64) -> bool {
        let mut busy = self.ring_timers(tables, now);
        self.conns.poll_receives(tables);
        busy |= self.send_blocked(now);
        self.conns.turn = self.conns.queue.len();
        busy
    }

    /// Serves the next connection that has something to do: until all that had at the beginning
    /// were served.
    pub(super) fn poll(&mut self, tables: &mut Tables, now: u64) -> Option<QpSlot> {
        while self.conns.turn > 0 {
            self.conns.turn -= 1;
            let slot = self.conns.queue.pop_front()?;
            if self.conns.end(slot).is_some() {
                self.serve(tables, slot, now);
                return Some(slot);
            }
        }
        None
    }

    /// Last: answers to what arrives leave in the next slice, with what its arrival makes the user
    /// post. Whether anything has arrived.
    pub(super) fn end_slice(&mut self, tables: &mut Tables, now: u64) -> bool {
        self.depart(now);
        self.receive_packets(tables, now) > 0
    }

    /// One turn of the connection in `slot`.
    fn serve(&mut self, tables: &mut Tables, slot: QpSlot, now: u64) {
        self.conns.share(slot);
        if let Some(end) = self.conns.end_mut(slot) {
            end.queued = false;
        }
        self.transmit(tables, slot, now);
        self.conns.served(slot);
    }

    /// A connection begins: its peer is met before it can end unnoticed.
    pub(crate) fn meet(&mut self, slot: QpSlot, now: u64) {
        if let (Some(end), Some(link)) = (self.conns.end(slot), &mut self.link) {
            let part = QpnPart::of(end.conn.config().dest_qpn.get());
            link.meet(duration(now), end.peer, part);
        }
    }

    /// Tells connections that their timers have run out. What is known of their peers is asked
    /// first, then what has arrived is received: an engine that did not run for a while has missed
    /// no answer. Whether anything had arrived.
    fn ring_timers(&mut self, tables: &mut Tables, now: u64) -> bool {
        if self.conns.timers.peek().is_none_or(|Reverse((due, _))| *due > now) {
            return false;
        }
        let mut due = std::mem::take(&mut self.conns.due);
        while let Some(slot) = self.conns.next_due(now) {
            let peer = self.conns.end(slot).map(|end| (end.peer, end.conn.config().dest_qpn));
            let peer = match (peer, &mut self.link) {
                (Some((to, qpn)), Some(link)) if self.blocked.is_empty() => {
                    link.peer(duration(now), to, QpnPart::of(qpn.get()))
                }
                _ => Peer::Unknown,
            };
            due.push((slot, peer));
        }
        let arrived = |_: &usize| self.receive_packets(tables, now) > 0;
        let busy = (0..OVERDUE_LOOKS).take_while(arrived).count() > 0;
        for (slot, peer) in due.drain(..) {
            if let Some(end) = self.conns.end_mut(slot) {
                end.conn.handle_timeout(Instant::from_nanos(now), peer);
                self.conns.enqueue(slot);
                self.conns.arm(slot);
            }
        }
        self.conns.due = due;
        busy
    }

    /// Something of the connections waits to be done, not for time.
    pub(super) fn is_network_pending(&self) -> bool {
        !self.conns.queue.is_empty() || !self.blocked.is_empty() || !self.conns.own.is_empty()
    }
}

impl Connections {
    /// The connection in `slot` has sent what it could: what is complete is reported, and its timer
    /// is set.
    fn served(&mut self, slot: QpSlot) {
        self.settle(slot);
        self.share(slot);
        self.arm(slot);
        if let Some(end) = self.end_mut(slot)
            && end.conn.awaits_receives()
            && !std::mem::replace(&mut end.awaiting_receives, true)
        {
            self.awaiting_receives.push(slot);
        }
    }

    /// Looks for receives that were posted since a peer was refused for lack of one.
    fn poll_receives(&mut self, tables: &mut Tables) {
        if self.awaiting_receives.is_empty() {
            return;
        }
        let mut awaiting_receives = std::mem::take(&mut self.awaiting_receives);
        awaiting_receives.retain(|&slot| {
            let source = tables.receives.get(slot).map(|rq| &rq.source);
            let Some(end) = self.end_mut(slot) else { return false };
            let waits = match source {
                Some(Receives::Own(own)) => own.left() == Some(0),
                _ => false,
            };
            if !waits {
                end.awaiting_receives = false;
                end.conn.receive_available();
                self.enqueue(slot);
            }
            waits
        });
        self.awaiting_receives = awaiting_receives;
    }

    /// The next connection with a timer that has run out.
    fn next_due(&mut self, now: u64) -> Option<QpSlot> {
        while let Some(Reverse((due, slot))) = self.timers.peek().copied()
            && due <= now
        {
            self.timers.pop();
            let Some(end) = self.end_mut(slot).filter(|end| end.armed == Some(due)) else {
                continue;
            };
            end.armed = None;
            if end.conn.poll_timeout().is_some_and(|due| due.as_nanos() <= now) {
                return Some(slot);
            }
            self.arm(slot);
        }
        None
    }
}

fn duration(now: u64) -> Duration {
    Duration::from_nanos(now)
}
