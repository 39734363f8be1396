//! The ends of a QP and of an SRQ at the device that executes the work.

use super::bounce::Pieces;
use super::id::GENERATION;
use super::inline::Slots;
use super::waiting::{SideWork, Waiting};
use crate::proxy_device::{ProxyDevice, ProxyLimits, ProxyReceiver};
use crate::slots::SrqSlot;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use warpverbs_rdma::Status;

/// A QP's end at the other device.
#[derive(Debug)]
pub(crate) struct End {
    pub(super) proxy_device: Box<dyn ProxyDevice>,
    pub(super) limits: ProxyLimits,
    /// The limits of WQEs: those with what slots add.
    pub(super) takes: ProxyLimits,
    pub(super) slots: Option<Slots>,
    pub(super) waiting: Waiting,
    /// Work for WQEs in flight in addition to posting them to the device, by index.
    pub(super) side_work: VecDeque<(u64, SideWork)>,
    pub(super) generation: u16,
    /// Send work requests at the device.
    pub(super) outstanding: u32,
    /// Receives of the QP's own queue at the device.
    pub(super) receives: u32,
    /// The device did not take all that it had room for: the rest is offered again.
    pub(super) stalled: bool,
    /// The QP failed: the device may return work until this time.
    pub(super) flushing: Option<u64>,
    /// A receive that could not be forwarded ended the QP.
    pub(super) broken: Option<(u64, Status)>,
    pub(super) gone: bool,
    /// In the list of those with something outstanding.
    pub(super) busy: bool,
}

impl End {
    pub(super) fn new(proxy_device: Box<dyn ProxyDevice>) -> Self {
        let limits = proxy_device.limits();
        let slots = proxy_device.staging().map(Slots::new);
        let more = slots.as_ref().map_or(0, |slots| slots.staging.slot);
        let takes = ProxyLimits { inline_bytes: limits.inline_bytes.max(more), ..limits };
        Self {
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
        }
    }

    /// Drops the QP's work; what waits for copies is returned.
    pub(super) fn reset(&mut self) -> Waiting {
        self.generation = self.generation.wrapping_add(1) & GENERATION;
        (self.outstanding, self.receives) = (0, 0);
        (self.stalled, self.flushing, self.broken) = (false, None, None);
        if let Some(slots) = &mut self.slots {
            slots.clear();
        }
        self.side_work.clear();
        std::mem::take(&mut self.waiting)
    }

    /// The additional work for the WQE at `index`, the oldest in flight.
    #[inline]
    pub(super) fn side_work_of(&mut self, index: u64) -> Option<&mut SideWork> {
        self.side_work.front_mut().filter(|(at, _)| *at == index).map(|(_, work)| work)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.outstanding > 0 || self.stalled || self.flushing.is_some() || !self.waiting.is_empty()
    }
}

/// An SRQ's end at the other device.
#[derive(Debug)]
pub(crate) struct SharedEnd {
    pub(super) srq: SrqSlot,
    pub(super) proxy_device: Box<dyn ProxyReceiver>,
    pub(super) depth: u32,
    pub(super) sges: u32,
    pub(super) outstanding: u32,
    /// Receives at the device with a bounce buffer, by number.
    pub(super) landing: FxHashMap<u64, Pieces>,
}

impl SharedEnd {
    pub(super) fn new(srq: SrqSlot, proxy_device: Box<dyn ProxyReceiver>) -> Self {
        let (depth, sges) = proxy_device.limits();
        Self { srq, proxy_device, depth, sges, outstanding: 0, landing: FxHashMap::default() }
    }
}
