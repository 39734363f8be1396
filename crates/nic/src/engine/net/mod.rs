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
mod bounced;
mod burst;
mod complete;
mod datagram;
mod end;
mod ends;
mod envelope;
mod host;
mod post;
mod rx;
mod state;
mod train;
mod tx;

pub(super) use end::End;

use super::report::Report;
use super::tables::Tables;
use crate::objects::receive::Receives;
use crate::slots::QpSlot;
use crate::stats::NetStats;
use ends::Ends;
use envelope::Envelopes;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use train::Train;
use warpverbs_link::{Link, Peer, QpnPart};
use warpverbs_mem::BouncePool;
use warpverbs_rc::Instant;

/// Batches received before a timer is processed: about what a socket holds.
const OVERDUE_LOOKS: usize = 64;
/// Slices without connections between two looks at the link.
const RESTS: u32 = 64;

/// All connections, and the link that they share.
pub(crate) struct Network {
    link: Option<Box<dyn Link>>,
    /// The train being built.
    train: Train,
    /// Trains that the link did not take yet.
    blocked: VecDeque<Train>,
    /// Emptied trains, for their memory.
    spare: Vec<Vec<u8>>,
    pub(super) conns: Connections,
    /// Slices in which there was no connection.
    rested: u32,
}

/// All connections, and what they share apart from the link. Receiving packets needs no more, so
/// the link can be borrowed beside it.
pub(crate) struct Connections {
    pub(crate) ends: Ends,
    pub(crate) datagrams: Datagrams,
    envelopes: Envelopes,
    /// Slots whose copies are to be looked after.
    bouncing: Vec<QpSlot>,
    /// Memory of bounce buffers.
    pool: BouncePool,
    pub(crate) stats: NetStats,
    /// Events since the engine looked last.
    pub(super) reports: Vec<Report>,
}

/// Datagrams on their way inside of this NIC.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// QPs of datagrams.
    pub(crate) qps: usize,
    /// Datagrams from QPs of this NIC to others of it.
    pub(super) own: VecDeque<Vec<u8>>,
    /// The datagram that is being delivered, with its route header.
    pub(super) buffer: Vec<u8>,
    /// Index of its receive.
    pub(super) current: u64,
}

impl Network {
    pub(crate) fn new(link: Option<Box<dyn Link>>) -> Self {
        let conns = Connections {
            ends: Ends::new(link.as_deref()),
            datagrams: Datagrams::default(),
            envelopes: Envelopes::new(link.as_ref().map(|link| link.local())),
            bouncing: Vec::new(),
            pool: bounce::pool(),
            stats: NetStats::default(),
            reports: Vec::new(),
        };
        let (train, blocked, spare) = (Train::default(), VecDeque::new(), Vec::new());
        Self { link, train, blocked, spare, conns, rested: 0 }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.conns.envelopes.local
    }

    pub(crate) fn max_mtu(&self) -> Option<crate::Mtu> {
        self.link.as_ref().map(|link| link.max_mtu())
    }

    /// A description of the link, if there is one.
    pub(crate) fn describe(&self) -> Option<String> {
        self.link.as_ref().map(|link| link.describe())
    }

    /// Whether every poll asks the system for datagrams.
    pub(crate) fn polls_system(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.polls_memory())
    }

    /// The next moment at which a connection or the link has something to do.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        let first = self.conns.ends.timers.peek().map(|Reverse((due, _))| *due);
        let link = self.link.as_ref().and_then(|link| link.next_event());
        [first, link.map(crate::clock::nanos)].into_iter().flatten().min()
    }
}

impl Network {
    /// Whether this slice has nothing to do: there is no link, or no connection. Without connections the
    /// link is served now and then all the same: so peers on this host see that this end has a processor
    /// and do not wait for it.
    pub(super) fn rests(&mut self) -> bool {
        if self.link.is_none() {
            return true;
        }
        if self.conns.ends.live > 0 || self.conns.datagrams.qps > 0 || !self.blocked.is_empty() {
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
        self.conns.ends.turn = self.conns.ends.queue.len();
        busy
    }

    /// Serves the next connection that has something to do: until all that had at the beginning
    /// were served.
    pub(super) fn poll(&mut self, tables: &mut Tables, now: u64) -> Option<QpSlot> {
        while self.conns.ends.turn > 0 {
            self.conns.ends.turn -= 1;
            let slot = self.conns.ends.queue.pop_front()?;
            if self.conns.ends.get(slot).is_some() {
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
        self.conns.ends.share(slot);
        if let Some(end) = self.conns.ends.get_mut(slot) {
            end.queued = false;
        }
        self.transmit(tables, slot, now);
        self.conns.served(slot);
    }

    /// A connection begins: the link notes its peer, so that the peer's end is noticed.
    pub(crate) fn meet(&mut self, slot: QpSlot, now: u64) {
        if let (Some(end), Some(link)) = (self.conns.ends.get(slot), &mut self.link) {
            let part = QpnPart::of(end.conn.config().dest_qpn.get());
            link.meet(duration(now), end.peer, part);
        }
    }

    /// Runs the connections' expired timers. The link is first asked for the state of
    /// their peers, then arrived packets are received: an engine that did not run for a while has
    /// missed no answer. Returns whether anything had arrived.
    fn ring_timers(&mut self, tables: &mut Tables, now: u64) -> bool {
        if self.conns.ends.timers.peek().is_none_or(|Reverse((due, _))| *due > now) {
            return false;
        }
        let mut due = std::mem::take(&mut self.conns.ends.due);
        while let Some(slot) = self.conns.ends.next_due(now) {
            let peer = self.conns.ends.get(slot).map(|end| (end.peer, end.conn.config().dest_qpn));
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
            if let Some(end) = self.conns.ends.get_mut(slot) {
                end.conn.handle_timeout(Instant::from_nanos(now), peer);
                self.conns.ends.enqueue(slot);
                self.conns.ends.arm(slot);
            }
        }
        self.conns.ends.due = due;
        busy
    }

    /// Some connection has work that does not wait for a timer.
    pub(super) fn is_network_pending(&self) -> bool {
        !self.conns.ends.queue.is_empty()
            || !self.blocked.is_empty()
            || !self.conns.datagrams.own.is_empty()
    }
}

impl Connections {
    /// The connection in `slot` has sent what it could: what is complete is reported, and its timer
    /// is set.
    fn served(&mut self, slot: QpSlot) {
        self.settle(slot);
        self.ends.share(slot);
        self.ends.arm(slot);
        if let Some(end) = self.ends.get_mut(slot)
            && end.conn.awaits_receives()
            && !std::mem::replace(&mut end.awaiting_receives, true)
        {
            self.ends.awaiting_receives.push(slot);
        }
    }

    /// Checks for receives that were posted since a peer got an RNR NAK.
    fn poll_receives(&mut self, tables: &mut Tables) {
        if self.ends.awaiting_receives.is_empty() {
            return;
        }
        let mut awaiting_receives = std::mem::take(&mut self.ends.awaiting_receives);
        awaiting_receives.retain(|&slot| {
            let source = tables.receives.get(slot).map(|rq| &rq.source);
            let Some(end) = self.ends.get_mut(slot) else { return false };
            let waits = match source {
                Some(Receives::Own(own)) => own.left() == Some(0),
                _ => false,
            };
            if !waits {
                end.awaiting_receives = false;
                end.conn.receive_available();
                self.ends.enqueue(slot);
            }
            waits
        });
        self.ends.awaiting_receives = awaiting_receives;
    }
}

fn duration(now: u64) -> Duration {
    Duration::from_nanos(now)
}
