//! Control calls that change what the engine works on.

use super::net::End as Connected;
use super::proxy::{End, Waiting};
use super::{Core, Flight};
use crate::AsyncEvent;
use crate::qp::receive::ReceiveQueue;
use crate::qp::send::SendQueue;
use crate::qp::state::transition;
use crate::qp::{Path, QpAttrs, QpState};
use crate::stats::{NicStats, QpStats};
use crate::{ModifyError, NicError};
use rand::Rng;
use std::collections::VecDeque;
use warpverbs_mem::Access;

/// What a control call took out of the engine. It may own memory and copies under way, so it is
/// dropped after the lock.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    _end: Option<Box<End>>,
    _waiting: Waiting,
    _connection: Option<Box<Connected>>,
    _flight: VecDeque<Flight>,
    _queues: Option<(Box<SendQueue>, Box<ReceiveQueue>)>,
}

impl Core {
    /// A free QP number: random, so that one that is gone is not soon another's.
    pub(crate) fn draw_qpn(&mut self) -> u32 {
        loop {
            let qpn = self.rng.next_u32() >> 8;
            // 0 and 1 are management QPs, 0xffffff is multicast.
            if (2..0xff_ffff).contains(&qpn) && !self.by_qpn.contains_key(&qpn) {
                return qpn;
            }
        }
    }

    /// The number of a QP of another device, if no QP has it.
    pub(crate) fn claim_qpn(&self, qpn: u32) -> Result<u32, NicError> {
        if !(2..0xff_ffff).contains(&qpn) {
            let (value, min, max) = (u64::from(qpn), 2, 0xff_fffe);
            return Err(NicError::OutOfRange {
                what: "QP number of a proxy device",
                value,
                min,
                max,
            });
        }
        match self.by_qpn.contains_key(&qpn) {
            true => Err(NicError::QpnTaken { qpn }),
            false => Ok(qpn),
        }
    }

    /// Takes a QP in. Both halves get the same slot, which is the number of its doorbell.
    pub(crate) fn insert_qp(
        &mut self,
        send: SendQueue,
        receive: ReceiveQueue,
    ) -> Result<u32, NicError> {
        let max = u64::from(self.bells.count());
        let exhausted = NicError::Exhausted { what: "QPs", max };
        let qpn = send.qpn.get();
        let slot = self.sends.insert(send).ok_or(exhausted.clone())?;
        let twin = self.receives.insert(receive).ok_or(exhausted)?;
        debug_assert_eq!(slot, twin);
        if let Some(q) = self.sends.get_mut(slot) {
            q.slot = slot;
        }
        if let Some(rq) = self.receives.get_mut(slot) {
            rq.slot = slot;
        }
        self.bells.clear(slot);
        self.by_qpn.insert(qpn, slot);
        Ok(slot)
    }

    pub(crate) fn remove_qp(&mut self, slot: u32) -> Garbage {
        self.past += self.qp_stats(slot);
        let (send, receive) = (self.sends.remove(slot), self.receives.remove(slot));
        let _connection = self.net.remove(slot);
        let _end = self.proxy.remove(slot);
        self.quieten(slot);
        self.run.retain(|queued| *queued != slot);
        self.watched.retain(|watched| *watched != slot);
        if let Some(q) = &send {
            self.by_qpn.remove(&q.qpn.get());
        }
        Garbage { _queues: send.zip(receive), _end, _connection, ..Garbage::default() }
    }

    /// Nothing that was under way for the QP in `slot` is heard of any more.
    fn quieten(&mut self, slot: u32) {
        self.bells.clear(slot);
        self.forget_held(slot);
        self.release_atomic(slot);
    }

    /// Brings the QP in `slot` to another state.
    pub(crate) fn modify(
        &mut self,
        slot: u32,
        to: QpState,
        attrs: &QpAttrs,
    ) -> Result<Garbage, ModifyError> {
        let (Some(q), Some(rq)) = (self.sends.get_mut(slot), self.receives.get_mut(slot)) else {
            return Ok(Garbage::default());
        };
        transition(q.state, to, attrs.given())?;
        attrs.check_ranges()?;
        self.net.check_path(attrs)?;
        self.proxy.check_path(slot, attrs.path)?;
        if to == QpState::Err {
            self.end(slot, None);
            self.poll_proxied(slot);
            return Ok(Garbage::default());
        }
        let mut garbage = Garbage::default();
        if to == QpState::Reset {
            garbage._flight = q.reset();
            rq.reset();
            self.quieten(slot);
            garbage._waiting = self.proxy.reset(slot);
        }
        let (Some(q), Some(rq)) = (self.sends.get_mut(slot), self.receives.get_mut(slot)) else {
            return Ok(garbage);
        };
        let from = q.state;
        (q.state, rq.state, q.drained) = (to, to, false);
        q.attrs.merge(attrs);
        q.restore_retries();
        let merged = q.attrs;
        q.peer_qpn = merged.dest_qpn.unwrap_or(0);
        rq.peer_qpn = merged.dest_qpn;
        q.remote = merged.path.is_some_and(|path| path != Path::Loopback);
        rq.remote = q.remote;
        if q.remote || to == QpState::Reset {
            garbage._connection = self.net.follow(slot, (from, to), &merged, q.depth);
        }
        rq.access = merged.access.unwrap_or(Access::empty());
        rq.min_rnr_timer = merged.min_rnr_timer.unwrap_or(0);
        rq.max_dest_rd_atomic = merged.max_dest_rd_atomic.unwrap_or(0);
        self.enqueue(slot);
        Ok(garbage)
    }

    pub(crate) fn qp_stats(&self, slot: u32) -> QpStats {
        let Some((q, rq)) = self.sends.get(slot).zip(self.receives.get(slot)) else {
            return QpStats::default();
        };
        let mut stats = q.stats;
        stats.receives = rq.receives;
        stats.received_bytes = rq.received_bytes;
        stats.flushed += rq.flushed;
        if let Some(conn) = self.net.conn_stats(slot) {
            stats.timeouts += conn.timeouts;
            stats.rnr_naks += conn.rnr_waits;
            stats.resent += conn.resent;
        }
        stats
    }

    pub(crate) fn nic_stats(&self) -> NicStats {
        let mut qps = self.past;
        for q in self.sends.iter() {
            qps += self.qp_stats(q.slot);
        }
        NicStats {
            qps,
            live_qps: self.by_qpn.len() as u64,
            live_keys: self.keys.len() as u64,
            steps: self.steps,
            violations: self.log.total,
            events_lost: self.events.lost,
            net: self.net.stats,
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop()
    }
}
