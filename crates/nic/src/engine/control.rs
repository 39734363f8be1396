//! Control calls: making and removing QPs, their states, and counters.

use super::tables::Tables;
use super::transition::transition;
use super::{Core, POLLS, Released};
use crate::format::Qpn;
use crate::objects::receive::{Grants, ReceiveQueue, Receives};
use crate::objects::send::{Executor, FirstError, SendQueue, Source};
use crate::proxy_device::ProxyDevice;
use crate::qp::{QpAttrs, QpInfo};
use crate::slots::QpSlot;
use crate::stats::QpStats;
use crate::{ModifyError, NicError};
use warpverbs_mem::Access;
use warpverbs_rdma::{Mtu, QpState, Service};

/// Adds a QP, whose halves have no number yet: its slot and its number, which is that of the device
/// that executes its work, if there is one.
pub(crate) fn insert_qp(
    core: &mut Core,
    (mut send, mut receive): (SendQueue, ReceiveQueue),
    proxy_device: Option<Box<dyn ProxyDevice>>,
) -> Result<(QpSlot, u32), NicError> {
    let tables = &mut core.queues.tables;
    let qpn = match &proxy_device {
        Some(proxy_device) => tables.claim_qpn(proxy_device.qpn())?,
        None => tables.draw_qpn(&mut core.doorbells.rng),
    };
    (send.qpn, receive.qpn) = (Qpn::new(qpn).unwrap_or_default(), qpn);
    if let Receives::Own(own) = &mut receive.source {
        own.qpn = qpn;
    }
    let datagrams = send.executor == Executor::Datagram;
    let slot = tables.insert_qp(send, receive, core.doorbells.count())?;
    core.network.conns.datagrams.qps += usize::from(datagrams);
    core.doorbells.clear(slot);
    if let Some(q) = core.queues.tables.sends.live(slot) {
        core.doorbells.watch(slot, q);
    }
    if let Some(proxy_device) = proxy_device {
        core.proxy.insert(slot, proxy_device);
    }
    Ok((slot, qpn))
}

/// Takes out a QP, with what it had under way.
pub(crate) fn remove_qp(core: &mut Core, slot: QpSlot) -> Released {
    let stats = qp_stats(core, slot);
    let datagrams = core.queues.tables.executor(slot) == Executor::Datagram;
    core.network.conns.datagrams.qps -= usize::from(datagrams);
    core.queues.diagnostics.past += stats;
    let (_connection, _end) = (core.network.conns.remove(slot), core.proxy.remove(slot));
    let _loopback = core.loopback.remove(slot);
    cancel_pending(core, slot);
    core.queues.schedule.remove(slot);
    let _queues = core.queues.tables.remove_qp(slot);
    if let Some((q, _)) = &_queues {
        core.doorbells.forget(slot, q);
    }
    Released { _queues, _end, _connection, _loopback, ..Released::default() }
}

/// Work announced before is completed as before.
pub(crate) fn consume_only(core: &mut Core, on: bool) {
    core.doorbells.scan_all(&mut core.queues);
    if !on {
        for slot in (0..core.queues.tables.sends.high_water() as u32).map(QpSlot) {
            let due = |q: &&SendQueue| {
                q.ring.consume_only && q.state == QpState::Rts && q.progress.is_due()
            };
            if core.queues.tables.sends.get(slot).filter(due).is_some() {
                core.queues.consume(slot);
            }
        }
    }
    core.queues.consume_only = on;
}

/// Nothing that was under way for the QP in `slot` is reported any more.
fn cancel_pending(core: &mut Core, slot: QpSlot) {
    core.doorbells.clear(slot);
    if let Some(q) = core.queues.tables.sends.get(slot)
        && let Source::Uar { page, .. } = q.doorbell.source
    {
        core.doorbells.uars.silence(page, q.qpn);
    }
    core.queues.completer.forget_held(&mut core.queues.tables, slot);
    core.queues.tables.atomics.release(slot);
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
    (q.state, rq.state, q.turn.drained) = (to, to, false);
    q.attrs.merge(attrs);
    q.restore_retries();
    let merged = q.attrs;
    q.peer.qpn = merged.dest_qpn.unwrap_or(0);
    rq.peer_qpn = merged.dest_qpn;
    q.executor = q.executor.with_path(merged.path);
    rq.executor = rq.executor.with_path(merged.path);
    if q.executor == Executor::Network || to == QpState::Reset {
        let qp = (slot, q.qpn.get(), q.ring.depth);
        released._connection = core.network.conns.follow(qp, (from, to), &merged);
        if to == QpState::Rtr {
            let now = core.queues.time.now();
            core.network.meet(slot, now);
        }
    }
    if (from, to) == (QpState::Rtr, QpState::Rts) {
        q.psn = merged.sq_psn.unwrap_or(0);
        q.format.start(q.psn, merged.mtu.unwrap_or(Mtu::B1024));
    }
    rq.grants = Grants {
        access: merged.access.unwrap_or(Access::empty()),
        qkey: merged.qkey.unwrap_or(0),
        min_rnr_timer: merged.min_rnr_timer.unwrap_or(0),
        max_dest_rd_atomic: merged.max_dest_rd_atomic.unwrap_or(0),
    };
    if to == QpState::Reset {
        cancel_pending(core, slot);
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
    if let Some((next, expected)) = core.network.conns.ends.psns(slot) {
        attrs.sq_psn = attrs.sq_psn.and(Some(next));
        attrs.rq_psn = attrs.rq_psn.and(Some(expected));
    }
    QpInfo { state: q.state, attrs, draining: q.state == QpState::Sqd && !q.turn.drained }
}

/// The counters of the QP in `slot`.
pub(crate) fn qp_stats(core: &Core, slot: QpSlot) -> QpStats {
    let Tables { sends, receives, .. } = &core.queues.tables;
    let Some((q, rq)) = sends.live(slot).zip(receives.live(slot)) else {
        return QpStats::default();
    };
    let mut stats = q.stats;
    stats.receives = rq.counts.receives;
    stats.received_bytes = rq.counts.bytes;
    stats.flushed += rq.counts.flushed;
    if let Some(conn) = core.network.conns.ends.conn_stats(slot) {
        stats.timeouts += conn.timeouts;
        stats.rnr_naks += conn.rnr_waits;
        stats.resent += conn.resent;
    }
    stats
}

/// The attributes of the QP in `slot`, as they were given.
pub(crate) fn attrs(core: &Core, slot: QpSlot) -> QpAttrs {
    core.queues.tables.sends.live(slot).map_or(QpAttrs::default(), |q| q.attrs)
}

/// The first error of the send queue in `slot` since RESET.
pub(crate) fn first_error(core: &Core, slot: QpSlot) -> Option<FirstError> {
    core.queues.tables.sends.live(slot)?.first_error
}
