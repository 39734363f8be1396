//! QPs whose peer is a QP of the same NIC: WQEs are executed here, from memory to memory.

mod burst;
mod execute;
mod refused;

use super::flight::{InFlight, Started, Stop};
use super::report::Report;
use super::tables::Tables;
use super::transfer::Fault;
use crate::slots::QpSlot;
use execute::Env;
use warpverbs_mlx5::wqe::Wqe;

/// What all such QPs share.
pub(crate) struct Loopback {
    /// Bytes moved at most for one WQE before other QPs run.
    slice: u64,
    pub(super) reports: Vec<Report>,
}

impl Loopback {
    pub(super) fn new(slice: u64) -> Self {
        Self { slice, reports: Vec::new() }
    }

    /// Executes plain WRITEs of the QP in `slot`, up to `budget`, and no further than the first that
    /// asks for a CQE. What was executed, if anything was.
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
        let Tables { sends, keys, receives, srqs, by_qpn, scratch, atomics, .. } = tables;
        let q = sends.live_mut(slot).ok_or(Stop::NoAnswer)?;
        let (reports, slice) = (&mut self.reports, self.slice);
        let mut env = Env { keys, receives, srqs, by_qpn, reports, scratch, atomics, slice };
        execute::execute(&mut env, q, wqe)
    }

    /// Lets the oldest WQE of the QP in `slot` go on. `None`: it has not ended. Else it is handed
    /// out with how it ended.
    pub(super) fn poll(
        &self,
        tables: &mut Tables,
        slot: QpSlot,
    ) -> Option<(InFlight, Result<(), Fault>)> {
        let Tables { sends, keys, .. } = tables;
        let q = sends.live_mut(slot)?;
        let ended = match q.flight.front_mut()?.work.advance(self.slice, keys) {
            Ok(false) => return None,
            Ok(true) => Ok(()),
            Err(fault) => Err(fault),
        };
        q.flight.pop_front().map(|first| (first, ended))
    }
}
