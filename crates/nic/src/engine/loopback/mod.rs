//! QPs whose peer is a QP of the same NIC: WQEs are executed here, from memory to memory.

mod burst;
mod execute;
mod refused;

use super::atomic::RemoteAtomic;
use super::copies::CopyQueue;
use super::outcome::{Delivery, Started, Stop};
use super::report::Report;
use super::tables::Tables;
use crate::format::{MAX_MESSAGE, Wqe};
use crate::slots::{QpSlot, Slot};
use execute::{Env, Executed};
use std::collections::VecDeque;

/// A WQE whose payload takes time.
#[derive(Debug)]
struct Moving {
    index: u64,
    /// It is in place when the copies before this one have ended.
    upto: u64,
    /// The receive to complete then.
    delivery: Option<Box<Delivery>>,
    atomic: Option<Box<RemoteAtomic>>,
}

/// Payload of one QP that takes time.
#[derive(Debug, Default)]
pub(crate) struct End {
    copies: CopyQueue<()>,
    moving: VecDeque<Moving>,
}

/// All such QPs, and what they share.
pub(crate) struct Loopback {
    /// By slot of the QP.
    ends: Vec<Option<Box<End>>>,
    /// Bytes moved at most for one WQE before other QPs run.
    slice: u64,
    pub(super) reports: Vec<Report>,
}

impl Loopback {
    pub(super) fn new(slice: u64) -> Self {
        Self { ends: Vec::new(), slice: slice.min(MAX_MESSAGE), reports: Vec::new() }
    }

    /// Takes out the QP's work. It may have copies in flight, so it is dropped without a lock held.
    pub(super) fn remove(&mut self, slot: QpSlot) -> Option<Box<End>> {
        self.ends.get_mut(slot.at())?.take()
    }

    /// Executes plain WRITEs of the QP in `slot`, up to `budget`, and no further than the first
    /// that asks for a CQE. Returns a report of those executed, if any were.
    #[inline]
    pub(super) fn burst(&self, tables: &mut Tables, slot: QpSlot, budget: u32) -> Option<Report> {
        burst::burst(tables, slot, budget, self.slice)
    }

    /// Starts `wqe`, the next of the send queue in `slot`.
    #[inline]
    pub(super) fn submit(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        wqe: &Wqe<'_>,
    ) -> Result<Started, Stop> {
        let Tables { sends, keys, receives, cqs, srqs, by_qpn, scratch, atomics, .. } = tables;
        let q = sends.live_mut(slot).ok_or(Stop::NoAnswer)?;
        let Self { ends, slice, reports } = self;
        if ends.len() <= slot.at() {
            ends.resize_with(slot.at() + 1, || None);
        }
        let End { copies, moving } = &mut **ends[slot.at()].get_or_insert_default();
        let slice = *slice;
        let mut env =
            Env { keys, receives, cqs, srqs, by_qpn, reports, scratch, atomics, copies, slice };
        let Executed { upto, brought, delivery, atomic } = execute::execute(&mut env, q, wqe)?;
        let Some(upto) = upto else { return Ok(Started { away: false, brought, delivery }) };
        let delivery = delivery.map(Box::new);
        moving.push_back(Moving { index: q.progress.next, upto, delivery, atomic });
        Ok(Started { away: true, brought, delivery: None })
    }

    /// Lets payload of the QP in `slot` go on. Returns a report of its oldest WQE, once the payload
    /// of that does not move any more.
    pub(super) fn poll(&mut self, tables: &mut Tables, slot: QpSlot, now: u64) -> Option<Report> {
        let End { copies, moving } = self.ends.get_mut(slot.at())?.as_deref_mut()?;
        copies.poll(now, Some(&tables.keys), self.slice);
        let first = moving.front_mut()?;
        let mut ended = copies.outcome(first.upto);
        if let (Ok(true), Some(atomic)) = (&ended, &mut first.atomic) {
            ended = atomic.advance(copies, ()).map_err(Into::into);
            first.upto = copies.next();
        }
        let result = match ended {
            Ok(false) => return None,
            Ok(true) => Ok(()),
            Err(fault) => Err(fault),
        };
        let Moving { index, delivery, .. } = moving.pop_front()?;
        tables.atomics.release(slot);
        Some(Report::Moved { slot, index, delivery, result })
    }

    /// Nothing of the QP in `slot` waits to be moved: a later WQE may start.
    pub(super) fn is_started(&self, slot: QpSlot) -> bool {
        let Some(Some(end)) = self.ends.get(slot.at()) else { return true };
        end.copies.is_started() && end.moving.iter().all(|moving| moving.atomic.is_none())
    }
}
