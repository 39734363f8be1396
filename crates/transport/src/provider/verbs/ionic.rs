//! QPs of an ionic device whose queues the device reads itself: libionic makes them in the memory that posters use,
//! and the vendor's tells where registers and rings lie.

use super::direct_queues::{DirectQueues, failed, no_shared_queues};
use super::opened::Opened;
use super::vendor_qp::{Doorbells, VendorQp};
use crate::TransportError;
use crate::provider::{CqSpec, QpSpec, QueuePair, RecvSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use warpverbs_mem::Region;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_verbs as verbs;
use warpverbs_verbs::ionic_dv::{IonicDv, QpPlace, Registers};

/// Library and registers for the QPs of a protection domain.
pub(super) struct Ionic {
    dv: IonicDv,
    offsets: [u64; 3],
    registers: Region,
    /// QPs made so far: they go by the device's pipelines in turn.
    made: AtomicU32,
}

impl Ionic {
    pub(super) fn new(opened: &Opened) -> Result<Self, TransportError> {
        let dv = IonicDv::of(&opened.context).map_err(failed)?;
        let registers = Registers::of_context(&dv).map_err(failed)?;
        let (offsets, registers) = (registers.offsets(), registers.region());
        Ok(Self { dv, offsets, registers, made: AtomicU32::new(0) })
    }
}

/// The memory of a CQ, and log2 of its entries.
fn cq(spec: &CqSpec<'_>) -> Result<(Region, u8), TransportError> {
    // The device finds every entry zeroed.
    spec.buf.fill(0, spec.buf.len(), 0)?;
    Ok((spec.buf.clone(), spec.log_size))
}

impl DirectQueues for Ionic {
    fn provider(&self) -> &'static str {
        "ionic"
    }

    fn format(&self) -> NicFormat {
        NicFormat::Ionic
    }

    fn register(&self) -> &Region {
        &self.registers
    }

    fn create_qp(
        &self,
        opened: &Arc<Opened>,
        pd: &verbs::Pd,
        spec: &QpSpec<'_>,
    ) -> Result<Arc<dyn QueuePair>, TransportError> {
        let rq = match spec.recv {
            RecvSpec::None => None,
            RecvSpec::Own { buf, log_depth, bytes } => {
                Some((buf.clone(), log_depth, bytes.ilog2() as u8))
            }
            RecvSpec::Shared(_) => return Err(no_shared_queues(opened)),
        };
        let place = QpPlace {
            sq: spec.sq.clone(),
            log_sq: spec.log_sq,
            rq,
            cqs: [cq(&spec.send_cq)?, cq(&spec.recv_cq)?],
            inline_bytes: spec.inline_bytes as u32,
        };
        let turn = self.made.fetch_add(1, Ordering::Relaxed);
        let (qp, cqns) = place.create(&self.dv, pd, turn)?;
        let doorbells = Doorbells { own: None, offsets: self.offsets };
        VendorQp::initialised(qp, cqns, doorbells, (opened, spec.access))
    }
}
