//! QPs whose peer is on the network: each drives a connection (`warpverbs-rc`) instead of executing
//! its WQEs here.
//!
//! ```text
//! WQE ─► parse ─► post ─► connection ─► transmit: payload gathered into the packet ─► link
//! link ─► arrive: ICRC, source, partition, QPN ─► connection ─► place, at once
//!                                                     └─► settle: CQEs, as for every QP
//! ```
//!
//! Payload that only a copy engine reaches goes through a [`bounce`]; what leaves and what is
//! reported then waits for copies.
//!
//! What the peer asks for is judged by [`host::Owner`], which stands on `responder.rs` as the
//! loopback does.

mod bounce;
mod complete;
mod host;
mod post;
mod rx;
mod state;
mod tx;

pub(super) use post::post;

use super::Core;
use super::stage::Pool;
use crate::link::Link;
use crate::qp::receive::Receives;
use crate::responder::Refusal;
use crate::stats::NetStats;
use arrayvec::ArrayVec;
use bounce::Stage;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use tx::Train;
use warpverbs_mlx5::wqe::Sge;
use warpverbs_rc::{Connection, Instant, WrId};

/// Looks at the link before a timer counts: about what a socket holds.
const OVERDUE_LOOKS: usize = 64;

/// Where the payload of a request lies. Keys are looked up again for every packet, so memory may go
/// away at any time.
#[derive(Debug)]
enum Outgoing {
    Bytes(Box<[u8]>),
    One(Sge),
    Many(Box<[Sge]>),
}

impl Outgoing {
    fn sges(&self) -> &[Sge] {
        match self {
            Self::Bytes(_) => &[],
            Self::One(sge) => std::slice::from_ref(sge),
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

    /// The oldest request, which is complete.
    fn pop(&mut self) -> Option<Posted> {
        self.first += 1;
        self.list.pop_front()
    }
}

/// A receive that a message of the peer goes into, or was last looked at for one.
#[derive(Debug, Default)]
pub(crate) struct AtHand {
    index: u64,
    link: u16,
    sges: ArrayVec<Sge, 64>,
}

/// This end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    conn: Connection,
    requests: Requests,
    peer: SocketAddr,
    at_hand: AtHand,
    /// Why a request of the peer ended the connection.
    refusal: Option<Refusal>,
    /// Once payload has lain in memory that only a copy engine reaches.
    stage: Option<Box<Stage>>,
    /// The earliest timer that is set for it.
    armed: Option<u64>,
    /// In the list of those to be served.
    queued: bool,
    /// Counted among those that are sending.
    sending: bool,
    /// In the list of those whose peers wait for receives.
    hungry: bool,
}

/// All connections, and what they share.
pub(crate) struct Network {
    /// Absent without a link, and while it hands over what arrived.
    link: Option<Box<dyn Link>>,
    local: Option<SocketAddr>,
    /// Bytes under way of all connections, about: what a receiver like this end can hold.
    room: usize,
    /// Connections with packets under way or to be sent, which share it.
    sending: usize,
    hidden: rx::HiddenIds,
    /// By slot of the QP.
    ends: Vec<Option<Box<End>>>,
    live: usize,
    /// Slots with something to complete or to send.
    queue: VecDeque<u32>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Slots whose peers were told that there is no receive.
    hungry: Vec<u32>,
    /// Slots whose stages have something to do.
    staging: Vec<u32>,
    /// Memory of stages.
    pool: Pool,
    /// What is being built.
    train: Train,
    /// What the link did not take yet.
    blocked: VecDeque<Train>,
    /// Emptied trains, for their memory.
    spare: Vec<Vec<u8>>,
    pub(crate) stats: NetStats,
}

impl Network {
    pub(crate) fn new(link: Option<Box<dyn Link>>) -> Self {
        Self {
            local: link.as_ref().map(|link| link.local()),
            room: link.as_ref().map_or(0, |link| link.window_bytes()),
            sending: 0,
            link,
            hidden: rx::HiddenIds::default(),
            ends: Vec::new(),
            live: 0,
            queue: VecDeque::new(),
            timers: BinaryHeap::new(),
            hungry: Vec::new(),
            staging: Vec::new(),
            pool: Pool::default(),
            train: Train::default(),
            blocked: VecDeque::new(),
            spare: Vec::new(),
            stats: NetStats::default(),
        }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    pub(crate) fn max_mtu(&self) -> Option<crate::Mtu> {
        self.link.as_ref().map(|link| link.max_mtu())
    }

    fn end(&self, slot: u32) -> Option<&End> {
        self.ends.get(slot as usize)?.as_deref()
    }

    fn end_mut(&mut self, slot: u32) -> Option<&mut End> {
        self.ends.get_mut(slot as usize)?.as_deref_mut()
    }

    /// The QP in `slot` has something to complete or to send.
    fn enqueue(&mut self, slot: u32) {
        if let Some(end) = self.end_mut(slot)
            && !end.queued
        {
            end.queued = true;
            self.queue.push_back(slot);
        }
    }

    /// Counts the connections that are sending, and gives this one its share of the room.
    fn share(&mut self, slot: u32) {
        let Self { ends, sending, room, .. } = self;
        let Some(end) = ends.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        let sends = end.queued || end.conn.is_outstanding();
        if sends != end.sending {
            end.sending = sends;
            *sending = if sends { *sending + 1 } else { *sending - 1 };
        }
        end.conn.limit_bytes((*room / (*sending).max(1)) as u64);
    }

    /// Sets the timer of a connection, unless an earlier one is set: that one looks again.
    fn arm(&mut self, slot: u32) {
        let Some(end) = self.end_mut(slot) else { return };
        let Some(due) = end.conn.poll_timeout().map(Instant::as_nanos) else { return };
        if end.armed.is_none_or(|armed| due < armed) {
            end.armed = Some(due);
            self.timers.push(Reverse((due, slot)));
        }
    }

    /// The next moment at which a connection or the link has something to do.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        let first = self.timers.peek().map(|Reverse((due, _))| *due);
        let link = self.link.as_ref().and_then(|link| link.next_event());
        [first, link.map(crate::clock::nanos)].into_iter().flatten().min()
    }
}

impl Core {
    /// One look at the link, then at every connection that has something to do. Whether anything
    /// was achieved.
    pub(super) fn serve_network(&mut self) -> bool {
        if self.net.link.is_none() || self.net.live == 0 && self.net.blocked.is_empty() {
            return false;
        }
        let now = self.time.now();
        let mut busy = self.hear_overdue(now);
        self.ring_timers(now);
        self.feed();
        busy |= self.send_blocked(now);
        for _ in 0..self.net.queue.len() {
            let Some(slot) = self.net.queue.pop_front() else { break };
            if self.net.end(slot).is_some() {
                busy = true;
                self.serve(slot, now);
            }
        }
        self.net.depart(now);
        // Last: answers to what arrives leave in the next slice, with what its arrival makes the
        // owner post.
        busy |= self.hear_and_tell(now);
        busy | self.serve_stages(now)
    }

    /// Hears, and completes what that has done: the owner sees it before the next slice. Whether
    /// there was anything.
    fn hear_and_tell(&mut self, now: u64) -> bool {
        if self.hear(now) == 0 {
            return false;
        }
        for at in 0..self.net.queue.len() {
            let Some(&slot) = self.net.queue.get(at) else { break };
            self.settle(slot);
        }
        true
    }

    /// One turn of the connection in `slot`.
    fn serve(&mut self, slot: u32, now: u64) {
        self.net.share(slot);
        if let Some(end) = self.net.end_mut(slot) {
            end.queued = false;
        }
        self.transmit(slot, now);
        self.settle(slot);
        self.net.share(slot);
        self.net.arm(slot);
        if let Some(end) = self.net.end_mut(slot)
            && end.conn.awaits_receives()
            && !std::mem::replace(&mut end.hungry, true)
        {
            self.net.hungry.push(slot);
        }
    }

    /// Looks for receives that were posted since a peer was told that there is none.
    fn feed(&mut self) {
        let mut hungry = std::mem::take(&mut self.net.hungry);
        hungry.retain(|&slot| {
            let source = self.receives.get(slot).map(|rq| &rq.source);
            let Some(end) = self.net.end_mut(slot) else { return false };
            let waits = match source {
                Some(Receives::Own(own)) => own.left() == Some(0),
                _ => false,
            };
            if !waits {
                end.hungry = false;
                end.conn.receive_available();
                self.net.enqueue(slot);
            }
            waits
        });
        self.net.hungry = hungry;
    }

    /// If a timer has run out, hears what has arrived already: an engine that did not run for a while
    /// has missed no answer for that. Whether there was anything.
    fn hear_overdue(&mut self, now: u64) -> bool {
        let overdue = self.net.timers.peek().is_some_and(|Reverse((due, _))| *due <= now);
        let looks = if overdue { OVERDUE_LOOKS } else { 0 };
        (0..looks).take_while(|_| self.hear(now) > 0).count() > 0
    }

    fn ring_timers(&mut self, now: u64) {
        while let Some(Reverse((due, slot))) = self.net.timers.peek().copied()
            && due <= now
        {
            self.net.timers.pop();
            let Some(end) = self.net.end_mut(slot).filter(|end| end.armed == Some(due)) else {
                continue;
            };
            end.armed = None;
            if end.conn.poll_timeout().is_some_and(|due| due.as_nanos() <= now) {
                end.conn.handle_timeout(Instant::from_nanos(now));
                self.net.enqueue(slot);
            }
            self.net.arm(slot);
        }
    }

    /// Something of the connections waits to be done, not for time.
    pub(super) fn is_network_pending(&self) -> bool {
        !self.net.queue.is_empty() || !self.net.blocked.is_empty()
    }
}

fn duration(now: u64) -> Duration {
    Duration::from_nanos(now)
}
