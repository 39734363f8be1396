//! Monitoring by the NIC's owner: events, violations, counters, the link; and faults that a test
//! switches on.

use super::diagnostics::Diagnostics;
use super::net::Network;
use super::{Core, POLLS, control};
use crate::objects::cq::Delay;
use crate::objects::receive::ReceiveQueue;
use crate::objects::send::SendQueue;
use crate::slots::CqSlot;
use crate::stats::NicStats;
use crate::{AsyncEvent, NicError};
use warpverbs_link::QpnPart;

/// Where the numbers of the NIC's QPs lie.
pub(crate) fn qpn_part(core: &Core) -> QpnPart {
    core.queues.tables.part
}

/// The link, and what is reached over it.
pub(crate) fn network(core: &Core) -> &Network {
    &core.network
}

/// Events and violations.
pub(crate) fn diagnostics(core: &mut Core) -> &mut Diagnostics {
    &mut core.queues.diagnostics
}

/// Only doorbell registers are still to be looked at before the engine is idle.
#[inline]
pub(crate) fn is_looking(core: &Core) -> bool {
    core.looking
}

/// An event of a device that executes work. A QP that has failed goes to ERR; one that was reset since has not.
pub(crate) fn raise(core: &mut Core, event: AsyncEvent) {
    core.queues.diagnostics.events.push(event);
    let (AsyncEvent::QpFatal { qpn, .. }
    | AsyncEvent::QpAccessError { qpn }
    | AsyncEvent::QpRequestError { qpn }) = event
    else {
        return;
    };
    let slot = core.queues.tables.by_qpn.get(&qpn).copied();
    if let Some(slot) = slot.filter(|&slot| core.proxy.has_failed(slot)) {
        core.poll_proxied(slot, POLLS);
        core.ending(|queues| queues.end(slot, None));
    }
}

/// The counters of the NIC.
pub(crate) fn nic_stats(core: &Core) -> NicStats {
    let tables = &core.queues.tables;
    let mut qps = core.queues.diagnostics.past;
    for q in tables.sends.iter() {
        qps += control::qp_stats(core, q.slot);
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

/// Switches a fault of the QP with this number on or off.
pub(crate) fn change_qp<T>(
    core: &mut Core,
    qpn: u32,
    change: impl FnOnce(&mut SendQueue, &mut ReceiveQueue) -> T,
) -> Result<T, NicError> {
    let tables = &mut core.queues.tables;
    let unknown = NicError::UnknownQp { qpn };
    let slot = *tables.by_qpn.get(&qpn).ok_or(unknown.clone())?;
    let halves = tables.sends.live_mut(slot).zip(tables.receives.live_mut(slot));
    let changed = halves.map(|(q, rq)| change(q, rq)).ok_or(unknown)?;
    core.queues.enqueue(slot);
    Ok(changed)
}

/// CQEs of a CQ are written late, until `None` is given.
pub(crate) fn delay_cqes(core: &mut Core, slot: CqSlot, delay: Option<Delay>) {
    if let Some(cq) = core.queues.tables.cqs.live_mut(slot) {
        cq.delay = delay;
    }
}
