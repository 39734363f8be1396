//! The ends of all connections: which have something to do now, and when the others do.

use super::end::End;
use crate::slots::{QpSlot, Slot};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use warpverbs_link::{Link, Peer};
use warpverbs_rc::{Connection, Instant, State};

/// See the module.
pub(crate) struct Ends {
    /// By slot of the QP.
    list: Vec<Option<Box<End>>>,
    pub(super) live: usize,
    /// Bytes under way of all connections, about: what a receiver like this end can hold.
    pub(super) room: usize,
    /// The link sends several datagrams of one length at a time.
    pub(super) trains: bool,
    /// Connections with packets under way or to be sent, which share the room.
    sending: usize,
    /// Slots with something to complete or to send.
    pub(super) queue: VecDeque<QpSlot>,
    /// Connections still to be served in this slice.
    pub(super) turn: usize,
    pub(super) timers: BinaryHeap<Reverse<(u64, QpSlot)>>,
    /// Those that have run out, while they are handled.
    pub(super) due: Vec<(QpSlot, Peer)>,
    /// Slots whose peers have been sent an RNR NAK or zero credits.
    pub(super) awaiting_receives: Vec<QpSlot>,
}

impl Ends {
    pub(super) fn new(link: Option<&dyn Link>) -> Self {
        Self {
            list: Vec::new(),
            live: 0,
            room: link.map_or(0, |link| link.window_bytes()),
            trains: link.is_some_and(|link| link.train_limits().segments > 1),
            sending: 0,
            queue: VecDeque::new(),
            turn: 0,
            timers: BinaryHeap::new(),
            due: Vec::new(),
            awaiting_receives: Vec::new(),
        }
    }

    /// The connection of the QP in `slot`, which has none.
    pub(super) fn insert(&mut self, slot: QpSlot, end: End) {
        if self.list.len() <= slot.at() {
            self.list.resize_with(slot.at() + 1, || None);
        }
        self.list[slot.at()] = Some(Box::new(end));
        self.live += 1;
    }

    /// Takes out the connection of the QP in `slot`.
    pub(super) fn remove(&mut self, slot: QpSlot) -> Option<Box<End>> {
        let end = self.list.get_mut(slot.at()).and_then(Option::take)?;
        self.live -= 1;
        self.sending -= usize::from(end.sending);
        self.awaiting_receives.retain(|awaiting_receives| *awaiting_receives != slot);
        self.queue.retain(|queued| *queued != slot);
        Some(end)
    }

    #[inline]
    pub(super) fn get(&self, slot: QpSlot) -> Option<&End> {
        self.list.get(slot.at())?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: QpSlot) -> Option<&mut End> {
        self.list.get_mut(slot.at())?.as_deref_mut()
    }

    /// The QP in `slot` has something to complete or to send.
    pub(super) fn enqueue(&mut self, slot: QpSlot) {
        if let Some(end) = self.get_mut(slot)
            && !end.queued
        {
            end.queued = true;
            self.queue.push_back(slot);
        }
    }

    /// Counts the connections that are sending, and gives this one its share of the room.
    pub(super) fn share(&mut self, slot: QpSlot) {
        let Self { list, sending, room, .. } = self;
        let Some(end) = list.get_mut(slot.at()).and_then(Option::as_deref_mut) else { return };
        let sends = end.queued || end.conn.is_outstanding();
        if sends != end.sending {
            end.sending = sends;
            *sending = if sends { *sending + 1 } else { *sending - 1 };
        }
        end.conn.limit_bytes((*room / (*sending).max(1)) as u64);
    }

    /// Sets the timer of a connection, unless an earlier one is set: that one looks again.
    pub(super) fn arm(&mut self, slot: QpSlot) {
        let Some(end) = self.get_mut(slot) else { return };
        let Some(due) = end.conn.poll_timeout().map(Instant::as_nanos) else { return };
        if end.armed.is_none_or(|armed| due < armed) {
            end.armed = Some(due);
            self.timers.push(Reverse((due, slot)));
        }
    }

    /// The next connection with a timer that has run out.
    pub(super) fn next_due(&mut self, now: u64) -> Option<QpSlot> {
        while let Some(Reverse((due, slot))) = self.timers.peek().copied()
            && due <= now
        {
            self.timers.pop();
            let Some(end) = self.get_mut(slot).filter(|end| end.armed == Some(due)) else {
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

    /// The connection in `slot` changes, and may go on by it.
    pub(super) fn change(&mut self, slot: QpSlot, change: impl FnOnce(&mut Connection)) {
        if let Some(end) = self.get_mut(slot) {
            change(&mut end.conn);
            self.enqueue(slot);
        }
    }

    /// Nothing that was begun is outstanding in SQD.
    pub(crate) fn is_drained(&self, slot: QpSlot) -> bool {
        let drained = |end: &End| end.conn.state() == State::Drained && end.has_reported();
        self.get(slot).is_some_and(drained)
    }

    /// The counters of a connection.
    pub(crate) fn conn_stats(&self, slot: QpSlot) -> Option<&warpverbs_rc::Stats> {
        self.get(slot).map(|end| end.conn.stats())
    }

    /// PSN of the next new packet of a connection, and of the next one expected.
    pub(crate) fn psns(&self, slot: QpSlot) -> Option<(u32, u32)> {
        let (next, expected) = self.get(slot)?.conn.psns();
        Some((next.get(), expected.get()))
    }
}
