//! Control calls for objects that QPs use: memory keys, CQs, SRQs and pages of doorbell registers.
//! Objects taken out may own memory, so callers drop them after the lock.

use super::Core;
use crate::NicError;
use crate::format::CqeRing;
use crate::objects::address::{self, Address};
use crate::objects::cq::CompletionQueue;
use crate::objects::srq::SharedReceiveQueue;
use crate::proxy_device::{InTable, OwnMemory, ProxyReceiver};
use crate::slots::{AhSlot, CqSlot, SrqSlot, UarSlot};
use crate::violation::{KeySide, Rule};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use warpverbs_mem::{Access, KeyHint, Region, RegisterPage, Span};
use warpverbs_rdma::Sge;

/// Registers memory of the protection domain `pd`, whose first byte work requests name `start`.
pub(crate) fn insert_key(
    core: &mut Core,
    pd: u32,
    region: &Region,
    access: Access,
    start: u64,
) -> Result<u32, NicError> {
    Ok(core.queues.tables.keys.insert_at(pd, region, access, start)?)
}

/// Registers memory that the device that executes proxied QPs knows as `device_lkey`, unless that
/// is 0.
pub(crate) fn insert_proxied_key(
    core: &mut Core,
    pd: u32,
    region: &Region,
    access: Access,
    device_lkey: u32,
) -> Result<u32, NicError> {
    let device_lkey = NonZeroU32::new(device_lkey);
    Ok(core.queues.tables.keys.insert_proxied(pd, region, access, device_lkey)?)
}

/// Host memory that the device knows as `device_lkey` stands in for that of `key`.
pub(crate) fn insert_bounce_buffer(core: &mut Core, key: u32, memory: &Region, device_lkey: u32) {
    core.proxy.bounce_buffers.insert(key, memory, device_lkey);
}

/// Removes a key; returns the memory behind it, and its bounce buffer.
pub(crate) fn remove_key(core: &mut Core, key: u32) -> (Option<Region>, Option<Region>) {
    (core.queues.tables.keys.remove(key), core.proxy.bounce_buffers.remove(key))
}

/// Revokes a key, or restores it.
pub(crate) fn set_revoked(core: &mut Core, key: u32, revoked: bool) -> Result<(), NicError> {
    Ok(core.queues.tables.keys.set_revoked(key, revoked)?)
}

/// A number that changes whenever a key is removed or revoked.
pub(crate) fn key_epoch(core: &Core) -> Arc<AtomicU64> {
    core.queues.tables.keys.epoch()
}

/// Memory as a device knows it.
pub(crate) struct AtDevice {
    pub(crate) sge: Sge,
    /// The whole range that the key covers: the first address and the length.
    pub(crate) covered: Option<(u64, u64)>,
}

/// `sge` of the protection domain `pd` as the device knows it.
pub(crate) fn find_at_device(
    core: &Core,
    (pd, hint): (u32, &mut KeyHint),
    (side, segment): (KeySide, u8),
    sge: Sge,
    needed: Access,
) -> Result<AtDevice, Box<Rule>> {
    let keys = &core.queues.tables.keys;
    let mut memory = InTable { keys, hint: &mut *hint, pd };
    let found = memory.at_device(side, segment, sge, needed).map_err(|rule| match *rule {
        Rule::KeyNotProxied { key } if core.proxy.bounce_buffers.contains(key) => {
            Box::new(Rule::Bounced { key })
        }
        _ => rule,
    })?;
    let span = keys.find(hint, pd, sge.lkey.0, sge.addr, sge.len, needed);
    let covered = span.map(|Span { region, offset, .. }| (sge.addr - offset, region.len() as u64));
    Ok(AtDevice { sge: found, covered })
}

/// A new CQ: its slot and number.
pub(crate) fn insert_cq(
    core: &mut Core,
    mut cq: CompletionQueue,
    raises_events: bool,
) -> Result<(CqSlot, u32), NicError> {
    let exhausted = NicError::Exhausted { what: "CQs", max: 1 << 23 };
    let cqn = core.queues.tables.cqs.next().ok_or(exhausted.clone())? + 1;
    cq.cqn = cqn;
    let slot = core.queues.tables.cqs.insert(cq).ok_or(exhausted)?;
    if raises_events {
        core.queues.completer.watch_arm(slot);
    }
    Ok((slot, cqn))
}

/// The CQ goes on in `ring`, in which its old ring is returned.
pub(crate) fn resize_cq(core: &mut Core, slot: CqSlot, ring: &mut CqeRing) -> Result<(), NicError> {
    let cq = core.queues.tables.cqs.live_mut(slot);
    let resized = cq.map_or(Ok(()), |cq| cq.resize(ring));
    core.queues.look_at_waiters(slot);
    resized
}

/// Takes out a CQ, which no QP uses.
pub(crate) fn remove_cq(core: &mut Core, slot: CqSlot) -> Option<Box<CompletionQueue>> {
    core.queues.remove_cq(slot)
}

/// A new SRQ, whose receives may go to another device: its slot and number.
pub(crate) fn insert_srq(
    core: &mut Core,
    mut srq: SharedReceiveQueue,
    proxy_device: Option<Box<dyn ProxyReceiver>>,
) -> Result<(SrqSlot, u32), NicError> {
    let exhausted = NicError::Exhausted { what: "SRQs", max: 1 << 23 };
    let srqn = core.queues.tables.srqs.next().ok_or(exhausted.clone())? + 1;
    srq.srqn = srqn;
    let slot = core.queues.tables.srqs.insert(srq).ok_or(exhausted)?;
    if let Some(proxy_device) = proxy_device {
        core.proxy.insert_shared(slot, proxy_device);
    }
    Ok((slot, srqn))
}

/// The event of the SRQ is raised once fewer than `limit` receives are left.
pub(crate) fn set_srq_limit(core: &mut Core, slot: SrqSlot, limit: u16) {
    if let Some(srq) = core.queues.tables.srqs.live_mut(slot) {
        srq.limit = limit;
    }
}

/// The limit that is armed.
pub(crate) fn srq_limit(core: &Core, slot: SrqSlot) -> u16 {
    core.queues.tables.srqs.live(slot).map_or(0, |srq| srq.limit)
}

/// Takes out an SRQ, which no QP uses.
pub(crate) fn remove_srq(core: &mut Core, slot: SrqSlot) -> impl Sized + use<> {
    (core.queues.tables.srqs.remove(slot), core.proxy.remove_shared(slot))
}

/// A number for an address of the protection domain `pd`.
pub(crate) fn insert_ah(core: &mut Core, pd: u32, gid: [u8; 16]) -> Result<AhSlot, NicError> {
    let exhausted = NicError::Exhausted { what: "address handles", max: address::MAX.into() };
    core.queues.tables.addresses.insert(Address { pd, gid }).ok_or(exhausted)
}

/// Takes out an address.
pub(crate) fn remove_ah(core: &mut Core, slot: AhSlot) {
    core.queues.tables.addresses.remove(slot);
}

/// Polls a page of doorbell registers.
pub(crate) fn insert_uar(core: &mut Core, page: &Region) -> Result<UarSlot, NicError> {
    core.doorbells.uars.add(page)
}

/// Removes a page that no QP uses; returns its memory.
pub(crate) fn remove_uar(core: &mut Core, slot: UarSlot) -> Option<RegisterPage> {
    core.doorbells.uars.remove(slot)
}
