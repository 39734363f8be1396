//! Control calls: states of QPs, and counters.

use super::tables::Tables;
use super::{Core, POLLS, Released};
use crate::qp::send::Executor;
use crate::qp::state::transition;
use crate::qp::{QpAttrs, QpState};
use crate::slots::QpSlot;
use crate::stats::{NicStats, QpStats};
use crate::{AsyncEvent, ModifyError};
use warpverbs_mem::Access;

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
    let datagrams = q.executor == Executor::Datagram;
    transition(datagrams, q.state, to, attrs.given())?;
    attrs.check_ranges()?;
    if datagrams && to == QpState::Rtr && core.network.local().is_none() {
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
