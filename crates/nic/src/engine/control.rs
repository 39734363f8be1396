//! Control calls: making and removing QPs, their states, and counters.

use super::tables::Tables;
use super::{Core, POLLS, Released};
use crate::qp::receive::ReceiveQueue;
use crate::qp::send::{Executor, SendQueue, Source};
use crate::qp::state::transition;
use crate::qp::{QpAttrs, QpInfo, QpState, Service};
use crate::slots::{QpSlot, UarSlot};
use crate::stats::{NicStats, QpStats};
use crate::{AsyncEvent, ModifyError, NicError};
use warpverbs_mem::{Access, Region, RegisterPage};

impl Core {
    /// A free QP number.
    pub(crate) fn draw_qpn(&mut self) -> u32 {
        self.queues.tables.draw_qpn(&mut self.doorbells.rng)
    }

    pub(crate) fn insert_qp(
        &mut self,
        send: SendQueue,
        receive: ReceiveQueue,
    ) -> Result<QpSlot, NicError> {
        let datagrams = send.executor == Executor::Datagram;
        let slot = self.queues.tables.insert_qp(send, receive, self.doorbells.count())?;
        self.network.conns.datagram_qps += usize::from(datagrams);
        self.doorbells.clear(slot);
        if let Some(q) = self.queues.tables.sends.live(slot) {
            self.doorbells.watch(slot, q);
        }
        Ok(slot)
    }

    pub(crate) fn remove_qp(&mut self, slot: QpSlot) -> Released {
        let stats = qp_stats(self, slot);
        let datagrams = self.queues.executor(slot) == Executor::Datagram;
        self.network.conns.datagram_qps -= usize::from(datagrams);
        self.queues.diagnostics.past += stats;
        let (_connection, _end) = (self.network.conns.remove(slot), self.proxy.remove(slot));
        let _loopback = self.loopback.remove(slot);
        self.cancel_pending(slot);
        self.queues.schedule.remove(slot);
        let _queues = self.queues.tables.remove_qp(slot);
        if let Some((q, _)) = &_queues {
            self.doorbells.forget(slot, q);
        }
        Released { _queues, _end, _connection, _loopback, ..Released::default() }
    }

    /// What was announced before is completed as before.
    pub(crate) fn consume_only(&mut self, on: bool) {
        self.doorbells.scan_all(&mut self.queues);
        if !on {
            for slot in (0..self.queues.tables.sends.high_water() as u32).map(QpSlot) {
                self.queues.consume_announced(slot);
            }
        }
        self.queues.consume_only = on;
    }

    pub(crate) fn add_uar(&mut self, page: &Region) -> Result<UarSlot, NicError> {
        self.doorbells.uars.add(page)
    }

    /// No QP uses the page any more. Its memory.
    pub(crate) fn remove_uar(&mut self, slot: UarSlot) -> Option<RegisterPage> {
        self.doorbells.uars.remove(slot)
    }

    /// Nothing that was under way for the QP in `slot` is reported any more.
    fn cancel_pending(&mut self, slot: QpSlot) {
        self.doorbells.clear(slot);
        if let Some(q) = self.queues.tables.sends.get(slot)
            && let Source::Uar { page, .. } = q.source
        {
            self.doorbells.uars.silence(page, q.qpn);
        }
        self.queues.cancel_pending(slot);
    }
}

/// Brings the QP in `slot` to another state.
pub(crate) fn modify(
    core: &mut Core,
    slot: QpSlot,
    to: QpState,
    attrs: &QpAttrs,
) -> Result<Released, ModifyError> {
    let Tables { sends, receives, .. } = &mut core.queues.tables;
    let (Some(q), Some(rq)) = (sends.live_mut(slot), receives.live_mut(slot)) else {
        return Ok(Released::default());
    };
    transition(q.service, q.state, to, attrs.given())?;
    attrs.check_ranges()?;
    if q.service == Service::Datagram && to == QpState::Rtr && core.network.local().is_none() {
        return Err(ModifyError::DatagramsNeedLink);
    }
    core.network.check_path(attrs)?;
    core.proxy.check_path(slot, attrs.path)?;
    if to == QpState::Err {
        core.ending(|queues| queues.end(slot, None));
        // Receives that the device has filled are reported before the QP can be destroyed.
        while core.poll_proxied(slot, POLLS) {}
        return Ok(Released::default());
    }
    let mut released = Released::default();
    let from = q.state;
    if to == QpState::Reset {
        q.reset();
        rq.reset();
        released._loopback = core.loopback.remove(slot);
        released._waiting = core.proxy.reset(slot);
    }
    (q.state, rq.state, q.drained) = (to, to, false);
    q.attrs.merge(attrs);
    q.restore_retries();
    let merged = q.attrs;
    q.peer_qpn = merged.dest_qpn.unwrap_or(0);
    rq.peer_qpn = merged.dest_qpn;
    q.executor = q.executor.with_path(merged.path);
    rq.executor = rq.executor.with_path(merged.path);
    if q.executor == Executor::Network || to == QpState::Reset {
        let qp = (slot, q.qpn.get(), q.depth);
        released._connection = core.network.conns.follow(qp, (from, to), &merged);
        if to == QpState::Rtr {
            let now = core.queues.time.now();
            core.network.meet(slot, now);
        }
    }
    rq.qkey = merged.qkey.unwrap_or(0);
    if (from, to) == (QpState::Rtr, QpState::Rts) {
        q.psn = merged.sq_psn.unwrap_or(0);
    }
    rq.access = merged.access.unwrap_or(Access::empty());
    rq.min_rnr_timer = merged.min_rnr_timer.unwrap_or(0);
    rq.max_dest_rd_atomic = merged.max_dest_rd_atomic.unwrap_or(0);
    if to == QpState::Reset {
        core.cancel_pending(slot);
    }
    core.queues.enqueue(slot);
    Ok(released)
}

/// The QP in `slot` as it is now.
pub(crate) fn query(core: &Core, slot: QpSlot) -> QpInfo {
    let Some(q) = core.queues.tables.sends.live(slot) else { return QpInfo::default() };
    let mut attrs = q.attrs;
    if q.executor == Executor::Datagram {
        attrs.sq_psn = attrs.sq_psn.and(Some(q.psn));
    }
    if let Some((next, expected)) = core.network.conns.psns(slot) {
        attrs.sq_psn = attrs.sq_psn.and(Some(next));
        attrs.rq_psn = attrs.rq_psn.and(Some(expected));
    }
    QpInfo { state: q.state, attrs, draining: q.state == QpState::Sqd && !q.drained }
}

/// The counters of the QP in `slot`.
pub(crate) fn qp_stats(core: &Core, slot: QpSlot) -> QpStats {
    let Tables { sends, receives, .. } = &core.queues.tables;
    let Some((q, rq)) = sends.live(slot).zip(receives.live(slot)) else {
        return QpStats::default();
    };
    let mut stats = q.stats;
    stats.receives = rq.receives;
    stats.received_bytes = rq.received_bytes;
    stats.flushed += rq.flushed;
    if let Some(conn) = core.network.conns.conn_stats(slot) {
        stats.timeouts += conn.timeouts;
        stats.rnr_naks += conn.rnr_waits;
        stats.resent += conn.resent;
    }
    stats
}

/// The counters of the NIC.
pub(crate) fn nic_stats(core: &Core) -> NicStats {
    let tables = &core.queues.tables;
    let mut qps = core.queues.diagnostics.past;
    for q in tables.sends.iter() {
        qps += qp_stats(core, q.slot);
    }
    NicStats {
        qps,
        live_qps: tables.by_qpn.len() as u64,
        live_keys: tables.keys.len() as u64,
        steps: core.queues.completer.steps,
        violations: core.queues.diagnostics.log.total,
        events_lost: core.queues.diagnostics.events.lost,
        stale_slots: tables.stale(),
        net: core.network.conns.stats,
    }
}

/// An event of a device that executes work.
pub(crate) fn raise(core: &mut Core, event: AsyncEvent) {
    core.queues.diagnostics.events.push(event);
    let (AsyncEvent::QpFatal { qpn, .. }
    | AsyncEvent::QpAccessError { qpn }
    | AsyncEvent::QpRequestError { qpn }) = event
    else {
        return;
    };
    let slot = core.queues.tables.by_qpn.get(&qpn).copied();
    if let Some(slot) = slot.filter(|&slot| core.proxy.has(slot)) {
        core.poll_proxied(slot, POLLS);
        core.ending(|queues| queues.end(slot, None));
    }
}
