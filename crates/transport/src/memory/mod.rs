//! Where everything of an endpoint lies: rings, CQs, records and scratch in one allocation that
//! poster and NIC share, posting state in one that only posters touch.

mod abort;
mod export;
mod plan;
mod reset;

pub(crate) use abort::{Abort, AbortWord};
pub(crate) use export::ExportedQp;

use crate::TransportError;
use crate::alloc::{self, alloc};
use crate::config::{EndpointConfig, QueuePlacement};
use plan::{Part, Rings, Shape, State};
use std::mem::offset_of;
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::{Kind, Region};
use warpverbs_mlx5::export::{CqMode, NicFormat, PostState, QueueState};

const CQ_CI: usize = offset_of!(QueueState, cq_ci);
const SCRATCH_FREE: usize = offset_of!(PostState, scratch_free);

/// The memory of one endpoint.
pub(crate) struct Memory {
    pub(crate) shape: Shape,
    gpu: Option<Arc<dyn Gpu>>,
    rings: Rings,
    ring_buf: Buffer,
    /// The send queue, part of `ring_buf` or alone.
    sq_buf: Buffer,
    state: State,
    state_buf: Buffer,
    /// Registers in the place of the records of receives and CQs.
    told_at: Option<[Region; 2]>,
}

macro_rules! parts {
    ($($buf:ident: $($name:ident = $group:ident.$field:ident),*;)*) => {$($(
        pub(crate) fn $name(&self) -> Result<Region, TransportError> {
            self.$buf(self.$group.$field)
        }
    )*)*};
}

impl Memory {
    /// `send_cq` is how the NIC reports what was sent, `format` that of its queues.
    pub(crate) fn new(
        config: &EndpointConfig,
        send_cq: CqMode,
        format: NicFormat,
    ) -> Result<Self, TransportError> {
        let shape = Shape::new(config, send_cq, format);
        let apart = config.placement == QueuePlacement::Device;
        let (rings, bytes) = Rings::new(&shape, !apart);
        let gpu = config.gpu.clone().filter(|_| config.placement != QueuePlacement::Host);
        let ring_buf = alloc(gpu.as_ref(), bytes, Place::Shared)?;
        let sq_buf = match rings.sq {
            Some(part) => ring_buf.slice(part.at, part.len)?,
            None => alloc(gpu.as_ref(), 64 << shape.log_send, Place::Device)?,
        };
        let (state, bytes) = State::new(&shape);
        let state_buf = alloc(gpu.as_ref(), bytes, Place::Device)?;
        let told_at = None;
        let memory = Self { shape, gpu, rings, ring_buf, sq_buf, state, state_buf, told_at };
        memory.write_state(SCRATCH_FREE, &u64::MAX.to_le_bytes())?;
        Ok(memory)
    }

    fn ring(&self, part: Part) -> Result<Region, TransportError> {
        Ok(self.ring_buf.region().slice(part.at, part.len)?)
    }

    /// All that the exported QP points to, but for the doorbells.
    pub(crate) fn buffers(&self) -> [&Buffer; 3] {
        [&self.ring_buf, &self.sq_buf, &self.state_buf]
    }

    fn stateful(&self, part: Part) -> Result<Region, TransportError> {
        Ok(self.state_buf.region().slice(part.at, part.len)?)
    }

    parts! {
        ring: rq = rings.rq, send_cq = rings.send_cq, recv_cq = rings.recv_cq,
            record = rings.record, scratch = rings.scratch, abort = rings.abort;
        stateful: sq_ready = state.sq_ready, rq_ready = state.rq_ready, sq_span = state.span;
    }

    /// The send queue.
    pub(crate) fn sq(&self) -> Region {
        self.sq_buf.region().clone()
    }

    /// All that poster and NIC share, but for a send queue that lies alone.
    pub(crate) fn shared(&self) -> &Region {
        self.ring_buf.region()
    }

    /// The table of packet numbers, of a format that has one.
    pub(crate) fn packets(&self) -> Result<Option<Region>, TransportError> {
        let table = self.shape.packets();
        let table = table.map(|(at, log)| self.sq_buf.region().slice(at, 8 << log));
        Ok(table.transpose()?)
    }

    /// From now on, posters tell of receives and of consumed CQEs at these registers, instead of in records.
    pub(crate) fn tell_at(&mut self, registers: Option<[Region; 2]>) {
        self.told_at = registers;
    }

    /// Where receives are announced.
    pub(crate) fn receive_bell(&self) -> Result<Region, TransportError> {
        match &self.told_at {
            Some([receives, _]) => Ok(receives.clone()),
            None => self.record(),
        }
    }

    /// Where it is told which CQEs of the send and of the receive CQ are consumed.
    pub(crate) fn cq_bells(&self) -> Result<[Region; 2], TransportError> {
        match &self.told_at {
            Some([_, cqs]) => Ok([cqs.clone(), cqs.clone()]),
            None => self.cq_records(),
        }
    }

    /// The receive and the send half of the QP's doorbell record.
    pub(crate) fn records(&self) -> Result<[Region; 2], TransportError> {
        let record = self.record()?;
        Ok([record.slice(0, 4)?, record.slice(4, 4)?])
    }

    /// Records of the send and of the receive CQ.
    pub(crate) fn cq_records(&self) -> Result<[Region; 2], TransportError> {
        Ok([self.ring(self.rings.send_cq_record)?, self.ring(self.rings.recv_cq_record)?])
    }

    fn state_field(&self, offset: usize, len: usize) -> Result<Region, TransportError> {
        Ok(self.stateful(self.state.state)?.slice(offset as u64, len)?)
    }

    pub(crate) fn sq_state(&self) -> Result<Region, TransportError> {
        self.state_field(offset_of!(PostState, sq), size_of::<QueueState>())
    }

    pub(crate) fn rq_state(&self) -> Result<Region, TransportError> {
        self.state_field(offset_of!(PostState, rq), size_of::<QueueState>())
    }

    pub(crate) fn error_word(&self) -> Result<Region, TransportError> {
        self.state_field(offset_of!(PostState, error), 8)
    }

    pub(crate) fn scratch_free(&self) -> Result<Region, TransportError> {
        self.state_field(SCRATCH_FREE, 8)
    }

    /// Whether the host can do all that a poster does.
    pub(crate) fn host_can_post(&self) -> bool {
        [&self.ring_buf, &self.sq_buf, &self.state_buf]
            .iter()
            .all(|buf| buf.region().kind() == Kind::Host)
    }

    fn read(&self, buf: &Buffer, at: u64, out: &mut [u8]) -> Result<(), TransportError> {
        alloc::read(self.gpu.as_ref(), buf, at, out)
    }

    fn write(&self, buf: &Buffer, at: u64, data: &[u8]) -> Result<(), TransportError> {
        alloc::write(self.gpu.as_ref(), buf, at, data)
    }

    /// Reads the posting state, wherever it is.
    pub(crate) fn read_state(&self, offset: usize, out: &mut [u8]) -> Result<(), TransportError> {
        self.read(&self.state_buf, self.state.state.at + offset as u64, out)
    }

    fn write_state(&self, offset: usize, data: &[u8]) -> Result<(), TransportError> {
        self.write(&self.state_buf, self.state.state.at + offset as u64, data)
    }

    /// The word that aborts every wait, which keeps the memory it is in.
    pub(crate) fn abort_word(&self) -> AbortWord {
        let (gpu, buf) = (self.gpu.clone(), self.ring_buf.clone());
        AbortWord { gpu, buf, at: self.rings.abort.at }
    }
}
