//! QPs whose work a [`ProxyDevice`] executes: their WQEs are parsed and checked here and executed
//! by another device.
//!
//! ```text
//! WQE ─► parse ─► post: keys translated, a list of requests ─► proxy device ─► device
//! receive record ─► receive: forwarded as it advances ─► proxy device ─► device
//! device ─► proxy device ─► settle: retired in order, CQEs as for every QP
//!                         └─► flush: once a QP failed and the device has returned all work
//! ```
//!
//! Memory that the device does not reach has a bounce buffer (`bounce`), and what waits for
//! copies between the two is kept in the queue's order (`wait`, `parked`, `arrivals`).
//!
//! A WQE stays in flight from its post to its retirement. The device is asked for a completion of
//! the last request of every list, and wherever the poster asked for one; it reports in order, so
//! each completion retires all before it.

mod arrivals;
mod bounce;
mod flush;
mod inline;
mod parked;
mod post;
mod receive;
mod settle;
mod wait;

pub(super) use post::Submitted;
pub(crate) use wait::Waiting;

use super::report::Report;
use super::tables::Tables;
use crate::clock::Time;
use crate::proxy_device::{ProxyDevice, ProxyLimits, ProxyReceiver, RecvList, SendList};
use crate::qp::{Path, QpState};
use crate::slots::{QpSlot, Slot, SrqSlot};
use crate::{Gone, ModifyError};
use bounce::{BounceBuffers, Pieces};
use inline::Slots;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use wait::SideWork;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::Completion;

/// Requests of one list at most.
const LIST: u32 = 32;
/// Idle proxy devices that one slice polls, in addition to those with work outstanding.
const WINDOW: usize = 16;
/// QPs whose receive records are looked at when a doorbell was rung. Messages between QPs of one
/// device that are more wait for the peer's receive as the connection does.
const EARLY: usize = 64;
/// Completions taken at a time.
pub(super) const BATCH: usize = 32;

/// The identity of work at a device: what it is, in which generation of its QP, and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    kind: WorkKind,
    /// The low 14 bits: completions from before a RESET are dropped.
    generation: u16,
    /// 48 bits.
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Send,
    Receive,
    /// A receive of an SRQ, which has no generation.
    Shared,
}

const GENERATION: u16 = (1 << 14) - 1;
const INDEX: u64 = (1 << 48) - 1;

impl Id {
    #[inline]
    fn pack(self) -> u64 {
        let kind = match self.kind {
            WorkKind::Send => 0,
            WorkKind::Receive => 1,
            WorkKind::Shared => 2,
        };
        kind << 62 | u64::from(self.generation & GENERATION) << 48 | self.index & INDEX
    }

    #[inline]
    fn unpack(id: u64) -> Option<Self> {
        let kind = match id >> 62 {
            0 => WorkKind::Send,
            1 => WorkKind::Receive,
            2 => WorkKind::Shared,
            _ => return None,
        };
        Some(Self { kind, generation: (id >> 48) as u16 & GENERATION, index: id & INDEX })
    }
}

/// A QP's end at the other device.
#[derive(Debug)]
pub(crate) struct End {
    proxy_device: Box<dyn ProxyDevice>,
    limits: ProxyLimits,
    /// The limits of WQEs: those with what slots add.
    takes: ProxyLimits,
    slots: Option<Slots>,
    waiting: Waiting,
    /// Work for WQEs in flight in addition to posting them to the device, by index.
    side_work: VecDeque<(u64, SideWork)>,
    generation: u16,
    /// Send work requests at the device.
    outstanding: u32,
    /// Receives of the QP's own queue at the device.
    receives: u32,
    /// The device did not take all that it had room for: the rest is offered again.
    stalled: bool,
    /// The QP failed: the device may return work until this time.
    flushing: Option<u64>,
    /// A receive that could not be forwarded ended the QP.
    broken: Option<(u64, Syndrome)>,
    gone: bool,
    /// In the list of those with something outstanding.
    busy: bool,
}

impl End {
    /// The additional work for the WQE at `index`, the oldest in flight.
    #[inline]
    fn side_work_of(&mut self, index: u64) -> Option<&mut SideWork> {
        self.side_work.front_mut().filter(|(at, _)| *at == index).map(|(_, work)| work)
    }

    fn is_busy(&self) -> bool {
        self.outstanding > 0 || self.stalled || self.flushing.is_some() || !self.waiting.is_empty()
    }
}

/// An SRQ's end at the other device.
#[derive(Debug)]
pub(crate) struct SharedEnd {
    pub(super) proxy_device: Box<dyn ProxyReceiver>,
    depth: u32,
    sges: u32,
    outstanding: u32,
    /// Receives at the device with a bounce buffer, by number.
    landing: FxHashMap<u64, Pieces>,
}

impl SharedEnd {
    pub(crate) fn new(proxy_device: Box<dyn ProxyReceiver>) -> Self {
        let (depth, sges) = proxy_device.limits();
        Self { proxy_device, depth, sges, outstanding: 0, landing: FxHashMap::default() }
    }
}

/// All proxied QPs, and what they share.
#[derive(Debug, Default)]
pub(crate) struct Proxy {
    /// By slot of the QP.
    ends: Vec<Option<Box<End>>>,
    /// Slots in use.
    live: Vec<QpSlot>,
    /// Those with something outstanding.
    busy: Vec<QpSlot>,
    cursor: usize,
    /// Slots of SRQs.
    shared: Vec<SrqSlot>,
    list: SendList,
    receives: RecvList,
    completions: Vec<Completion>,
    pub(crate) bounce_buffers: BounceBuffers,
    /// What has happened since the engine looked last.
    pub(super) reports: Vec<Report>,
    /// Busy ends that were served in this slice.
    turn: usize,
    /// Idle ends still to be served in this slice.
    idle: usize,
}

impl Proxy {
    #[inline]
    fn end(&self, slot: QpSlot) -> Option<&End> {
        self.ends.get(slot.at())?.as_deref()
    }

    #[inline]
    fn end_mut(&mut self, slot: QpSlot) -> Option<&mut End> {
        self.ends.get_mut(slot.at())?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, slot: QpSlot, proxy_device: Box<dyn ProxyDevice>) {
        let at = slot.at();
        if self.ends.len() <= at {
            self.ends.resize_with(at + 1, || None);
        }
        let limits = proxy_device.limits();
        let slots = proxy_device.staging().map(Slots::new);
        let more = slots.as_ref().map_or(0, |slots| slots.staging.slot);
        let takes = ProxyLimits { inline_bytes: limits.inline_bytes.max(more), ..limits };
        self.ends[at] = Some(Box::new(End {
            proxy_device,
            limits,
            takes,
            slots,
            waiting: Waiting::default(),
            side_work: VecDeque::new(),
            generation: 0,
            outstanding: 0,
            receives: 0,
            stalled: false,
            flushing: None,
            broken: None,
            gone: false,
            busy: false,
        }));
        self.live.push(slot);
    }

    /// The end is to be dropped without a lock held.
    pub(crate) fn remove(&mut self, slot: QpSlot) -> Option<Box<End>> {
        let end = self.ends.get_mut(slot.at())?.take()?;
        self.live.retain(|live| *live != slot);
        self.busy.retain(|busy| *busy != slot);
        Some(end)
    }

    pub(crate) fn insert_shared(&mut self, srq: SrqSlot) {
        self.shared.push(srq);
    }

    pub(crate) fn remove_shared(&mut self, srq: SrqSlot) {
        self.shared.retain(|shared| *shared != srq);
    }

    /// Drops the QP's work; copies in flight are returned, to be dropped without a lock held. The
    /// device's QP is reset after this.
    pub(crate) fn reset(&mut self, slot: QpSlot) -> Waiting {
        let Some(end) = self.end_mut(slot) else { return Waiting::default() };
        end.generation = end.generation.wrapping_add(1) & GENERATION;
        (end.outstanding, end.receives) = (0, 0);
        (end.stalled, end.flushing, end.broken) = (false, None, None);
        if let Some(slots) = &mut end.slots {
            slots.clear();
        }
        end.side_work.clear();
        std::mem::take(&mut end.waiting)
    }

    /// A QP takes the path of its kind. Changes nothing.
    pub(crate) fn check_path(&self, slot: QpSlot, path: Option<Path>) -> Result<(), ModifyError> {
        let proxied = self.end(slot).is_some();
        match path {
            Some(path) if (path == Path::Proxied) != proxied => {
                Err(ModifyError::WrongPath { path, proxied })
            }
            _ => Ok(()),
        }
    }

    fn mark_busy(&mut self, slot: QpSlot) {
        if let Some(end) = self.end_mut(slot)
            && !end.busy
        {
            end.busy = true;
            self.busy.push(slot);
        }
    }

    /// The earliest timeout of a flush.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.busy.iter().filter_map(|&slot| self.end(slot)?.flushing).min()
    }

    pub(crate) fn has_ends(&self) -> bool {
        !self.live.is_empty()
    }
}

impl Proxy {
    /// Before the ends are served: receives of SRQs. Whether there were any.
    pub(super) fn begin(&mut self, tables: &mut Tables) -> bool {
        (self.turn, self.idle) = (0, self.live.len().min(WINDOW));
        let shared = 0..self.shared.len();
        shared.fold(false, |busy, i| self.forward_shared(tables, self.shared[i]) | busy)
    }

    /// The next end to serve in this slice: all with work outstanding, then some of the others.
    pub(super) fn next(&mut self) -> Option<QpSlot> {
        if let Some(&slot) = self.busy.get(self.turn) {
            self.turn += 1;
            return Some(slot);
        }
        while self.idle > 0 && !self.live.is_empty() {
            self.idle -= 1;
            self.cursor = (self.cursor + 1) % self.live.len();
            let slot = self.live[self.cursor];
            if self.end(slot).is_some_and(|end| !end.busy) {
                return Some(slot);
            }
        }
        None
    }

    /// The end in `slot`, given by [`Self::next`], was served.
    pub(super) fn served(&mut self, slot: QpSlot) {
        if let Some(end) = self.end_mut(slot)
            && end.busy
            && !end.is_busy()
        {
            end.busy = false;
            if let Some(at) = self.busy.iter().position(|busy| *busy == slot) {
                self.busy.swap_remove(at);
                self.turn -= usize::from(at < self.turn);
            }
        }
    }

    /// A doorbell was rung: receives that were posted before it are at the device before the work
    /// that it announces.
    pub(super) fn forward_first(&mut self, tables: &mut Tables) {
        for i in 0..self.shared.len() {
            self.forward_shared(tables, self.shared[i]);
        }
        for i in 0..self.live.len().min(EARLY) {
            self.forward_receives(tables, self.live[i]);
        }
    }

    /// Takes completions of one device, which [`Self::settle`] then acts on one by one: a list, and
    /// how many of it there are.
    pub(super) fn take_completions(
        &mut self,
        tables: &Tables,
        slot: QpSlot,
    ) -> (Vec<Completion>, usize) {
        let mut done = std::mem::take(&mut self.completions);
        done.resize(BATCH, Completion::default());
        let polled = match self.end_mut(slot) {
            Some(end) if !end.gone => end.proxy_device.poll(&mut done),
            _ => Ok(0),
        };
        let count = match polled {
            Ok(count) => count.min(BATCH),
            Err(Gone) => {
                self.lose_device(tables, slot);
                0
            }
        };
        (done, count)
    }

    /// Returns the list of [`Self::take_completions`] for reuse.
    pub(super) fn give_back(&mut self, done: Vec<Completion>) {
        self.completions = done;
    }

    /// After the completions of the QP in `slot`: its receives, work that waits for copies, and the
    /// end of a flush. Whether anything was achieved.
    pub(super) fn serve(&mut self, tables: &mut Tables, time: &Time, slot: QpSlot) -> bool {
        let mut busy = self.forward_receives(tables, slot);
        if let Some(end) = self.end_mut(slot)
            && std::mem::take(&mut end.stalled)
        {
            self.reports.push(Report::Ready { slot });
        }
        busy |= self.serve_waiting(tables, time, slot);
        busy
    }

    /// So many WQEs of the QP in `slot` that the device executed were retired.
    pub(super) fn retired(&mut self, slot: QpSlot, count: u32) {
        if let Some(end) = self.end_mut(slot) {
            end.outstanding = end.outstanding.saturating_sub(count);
        }
    }

    /// The states in which the device's receive queue takes receives.
    fn takes_receives(&self, tables: &Tables, slot: QpSlot) -> bool {
        let state = tables.receives.live(slot).map(|rq| rq.state);
        state.is_some_and(|state| state == QpState::Init || state.responds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_come_back() {
        for kind in [WorkKind::Send, WorkKind::Receive, WorkKind::Shared] {
            for (generation, index) in [(0, 0), (GENERATION, INDEX), (5, 0x1234_5678_9abc)] {
                let id = Id { kind, generation, index };
                assert_eq!(Id::unpack(id.pack()), Some(id));
            }
        }
        assert_eq!(Id::unpack(3 << 62), None);
    }
}
