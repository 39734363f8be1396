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
mod end;
mod flush;
mod id;
mod inline;
mod parked;
mod post;
mod receive;
mod settle;
mod wait;
mod waiting;

pub(super) use end::End;
pub(super) use post::Submitted;
pub(super) use waiting::Waiting;

use super::report::Report;
use super::tables::Tables;
use crate::clock::Time;
use crate::proxy_device::{ProxyDevice, ProxyReceiver, ProxyReceives, ProxySends};
use crate::qp::Path;
use crate::slots::{QpSlot, Slot, SrqSlot};
use crate::{Gone, ModifyError};
use bounce::BounceBuffers;
use end::SharedEnd;
use warpverbs_rdma::Completion;
use warpverbs_rdma::QpState;

/// Requests of one list at most.
const LIST: u32 = 32;
/// Idle proxy devices that one slice polls, in addition to those with work outstanding.
const WINDOW: usize = 16;
/// QPs whose receive records are looked at when a doorbell was rung. Messages between QPs of one
/// device that are more wait for the peer's receive as the connection does.
const EARLY: usize = 64;
/// Completions taken at a time.
pub(super) const BATCH: usize = 32;

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
    /// Those of SRQs.
    shared: Vec<SharedEnd>,
    list: ProxySends,
    receives: ProxyReceives,
    completions: Vec<Completion>,
    pub(crate) bounce_buffers: BounceBuffers,
    /// Events since the engine looked last.
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
        self.ends[at] = Some(Box::new(End::new(proxy_device)));
        self.live.push(slot);
    }

    /// The end is to be dropped without a lock held.
    pub(crate) fn remove(&mut self, slot: QpSlot) -> Option<Box<End>> {
        let end = self.ends.get_mut(slot.at())?.take()?;
        self.live.retain(|live| *live != slot);
        self.busy.retain(|busy| *busy != slot);
        Some(end)
    }

    pub(crate) fn insert_shared(&mut self, srq: SrqSlot, proxy_device: Box<dyn ProxyReceiver>) {
        self.shared.push(SharedEnd::new(srq, proxy_device));
    }

    /// The end is to be dropped without a lock held.
    pub(crate) fn remove_shared(&mut self, srq: SrqSlot) -> Option<SharedEnd> {
        let at = self.shared.iter().position(|end| end.srq == srq)?;
        Some(self.shared.swap_remove(at))
    }

    /// Drops the QP's work; copies in flight are returned, to be dropped without a lock held. The
    /// device's QP is reset after this.
    pub(crate) fn reset(&mut self, slot: QpSlot) -> Waiting {
        self.end_mut(slot).map_or_else(Waiting::default, End::reset)
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
        shared.fold(false, |busy, i| self.forward_shared(tables, i) | busy)
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
            self.forward_shared(tables, i);
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

    /// Gives back the list of [`Self::take_completions`] for reuse.
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

    /// `count` WQEs of the QP in `slot` that the device executed were retired.
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
