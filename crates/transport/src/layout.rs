//! Where everything of an endpoint lies: rings, CQs, records and scratch in one allocation that
//! poster and NIC share, posting state in one that only posters touch.

use crate::Error;
use crate::config::{EndpointConfig, QueuePlacement};
use std::mem::offset_of;
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::{HostBuf, Kind, Region};
use warpverbs_mlx5::cqe::{CQE, CqeTail, TAIL_OFFSET, owned_by_software};
use warpverbs_mlx5::doorbell::set_ci_word;
use warpverbs_mlx5::export::{Cq, CqMode, PostState, Qp, QueueState, SCRATCH_SLOTS};
use warpverbs_nic::{NicError, StopWatcher};
use zerocopy::IntoBytes;

/// Parts begin on lines of their own, also for prefetchers that fetch lines in pairs.
const ALIGN: u64 = 128;

/// Sizes of an endpoint's queues.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) log_send: u8,
    /// log2 of the receives, own or (with an SRQ) those the CQ can report.
    pub(crate) log_recv: u8,
    pub(crate) log_stride: u8,
    pub(crate) own_recv: bool,
    pub(crate) send_cq_mode: CqMode,
    pub(crate) log_send_cq: u8,
    pub(crate) inline_bytes: usize,
}

impl Shape {
    pub(crate) fn new(config: &EndpointConfig) -> Self {
        let log_send = config.log_send();
        let log_send_cq = if config.send_cq == CqMode::Ring { log_send } else { 0 };
        Self {
            log_send,
            log_recv: config.log_recv(),
            log_stride: config.log_recv_stride(),
            own_recv: config.has_own_recv(),
            send_cq_mode: config.send_cq,
            log_send_cq,
            inline_bytes: config.inline_bytes as usize,
        }
    }
}

/// Offsets and lengths of the parts of one allocation.
#[derive(Debug, Default)]
struct Plan {
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    at: u64,
    len: usize,
}

impl Plan {
    fn part(&mut self, len: usize) -> Part {
        let at = self.end.next_multiple_of(ALIGN);
        self.end = at + len as u64;
        Part { at, len }
    }
}

#[derive(Debug)]
struct Rings {
    rq: Part,
    send_cq: Part,
    recv_cq: Part,
    record: Part,
    send_cq_record: Part,
    recv_cq_record: Part,
    scratch: Part,
    abort: Part,
}

#[derive(Debug)]
struct State {
    state: Part,
    sq_ready: Part,
    rq_ready: Part,
    span: Part,
    qp: Part,
}

/// Values of the abort word besides 0. Kernels treat them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Abort {
    /// [`Endpoint::abort`](crate::Endpoint::abort) was called.
    ByHost = 1,
    /// The NIC stopped.
    NicStopped = 2,
}

/// The word that aborts every wait: 0, or an [`Abort`].
pub(crate) struct AbortWord {
    gpu: Option<Arc<dyn Gpu>>,
    buf: Buffer,
    at: u64,
}

impl AbortWord {
    pub(crate) fn read(&self) -> Result<u32, Error> {
        let mut word = [0; 4];
        read(self.gpu.as_ref(), &self.buf, self.at, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    pub(crate) fn set(&self, by: Abort) -> Result<(), Error> {
        write(self.gpu.as_ref(), &self.buf, self.at, &(by as u32).to_le_bytes())
    }
}

/// Nothing completes any more: all waits end, on host and device.
impl StopWatcher for AbortWord {
    fn nic_stopped(&self, cause: &NicError) {
        if let Err(error) = self.set(Abort::NicStopped) {
            tracing::error!(%cause, %error, "waits end at their deadlines");
        }
    }
}

fn read(gpu: Option<&Arc<dyn Gpu>>, buf: &Buffer, at: u64, out: &mut [u8]) -> Result<(), Error> {
    match gpu {
        Some(gpu) => gpu.read(buf, at, out)?,
        None => buf.region().read(at, out)?,
    }
    Ok(())
}

fn write(gpu: Option<&Arc<dyn Gpu>>, buf: &Buffer, at: u64, data: &[u8]) -> Result<(), Error> {
    match gpu {
        Some(gpu) => gpu.write(buf, at, data)?,
        None => buf.region().write(at, data)?,
    }
    Ok(())
}

/// The memory of one endpoint.
pub(crate) struct Memory {
    pub(crate) shape: Shape,
    gpu: Option<Arc<dyn Gpu>>,
    rings: Rings,
    ring_buf: Buffer,
    /// The send queue, at its start or alone.
    sq_buf: Buffer,
    state: State,
    state_buf: Buffer,
}

/// Allocates zeroed memory: of the device, or plain host memory.
pub(crate) fn alloc(gpu: Option<&Arc<dyn Gpu>>, len: u64, place: Place) -> Result<Buffer, Error> {
    match gpu {
        Some(gpu) => Ok(gpu.alloc(len as usize, place)?),
        None => Ok(Buffer::of_region(HostBuf::region(len as usize)?)),
    }
}

macro_rules! parts {
    ($($buf:ident: $($name:ident = $group:ident.$field:ident),*;)*) => {$($(
        pub(crate) fn $name(&self) -> Result<Region, Error> {
            self.$buf(self.$group.$field)
        }
    )*)*};
}

impl Memory {
    pub(crate) fn new(config: &EndpointConfig) -> Result<Self, Error> {
        let shape = Shape::new(config);
        let (send, recv) = (1usize << shape.log_send, 1usize << shape.log_recv);
        let own_rq = if shape.own_recv { recv << shape.log_stride } else { 0 };
        let mut plan = Plan::default();
        if config.placement != QueuePlacement::Device {
            plan.part(send * 64);
        }
        let rings = Rings {
            rq: plan.part(own_rq),
            send_cq: plan.part(64 << shape.log_send_cq),
            recv_cq: plan.part(recv * 64),
            record: plan.part(8),
            send_cq_record: plan.part(8),
            recv_cq_record: plan.part(8),
            scratch: plan.part((SCRATCH_SLOTS + 1) * 8),
            abort: plan.part(4),
        };
        let gpu = config.gpu.clone().filter(|_| config.placement != QueuePlacement::Host);
        let ring_buf = alloc(gpu.as_ref(), plan.end, Place::Shared)?;
        let sq_buf = match config.placement {
            QueuePlacement::Device => alloc(gpu.as_ref(), (send * 64) as u64, Place::Device)?,
            _ => ring_buf.clone(),
        };
        let mut plan = Plan::default();
        let state = State {
            state: plan.part(size_of::<PostState>()),
            sq_ready: plan.part(send.div_ceil(64) * 8),
            rq_ready: plan.part(recv.div_ceil(64) * 8),
            span: plan.part(send),
            qp: plan.part(size_of::<Qp>()),
        };
        let state_buf = alloc(gpu.as_ref(), plan.end, Place::Device)?;
        let memory = Self { shape, gpu, rings, ring_buf, sq_buf, state, state_buf };
        memory.write_state(SCRATCH_FREE, &u64::MAX.to_le_bytes())?;
        Ok(memory)
    }

    fn ring(&self, part: Part) -> Result<Region, Error> {
        Ok(self.ring_buf.region().slice(part.at, part.len)?)
    }

    /// All that the exported QP points to, but for the doorbells.
    pub(crate) fn buffers(&self) -> [&Buffer; 3] {
        [&self.ring_buf, &self.sq_buf, &self.state_buf]
    }

    fn stateful(&self, part: Part) -> Result<Region, Error> {
        Ok(self.state_buf.region().slice(part.at, part.len)?)
    }

    parts! {
        ring: rq = rings.rq, send_cq = rings.send_cq, recv_cq = rings.recv_cq,
            record = rings.record, scratch = rings.scratch, abort = rings.abort;
        stateful: sq_ready = state.sq_ready, rq_ready = state.rq_ready, sq_span = state.span;
    }

    /// The send queue.
    pub(crate) fn sq(&self) -> Result<Region, Error> {
        // First in its buffer, whichever that is.
        Ok(self.sq_buf.region().slice(0, 64 << self.shape.log_send)?)
    }

    /// The receive and the send half of the QP's doorbell record.
    pub(crate) fn records(&self) -> Result<[Region; 2], Error> {
        let record = self.record()?;
        Ok([record.slice(0, 4)?, record.slice(4, 4)?])
    }

    /// Records of the send and of the receive CQ.
    pub(crate) fn cq_records(&self) -> Result<[Region; 2], Error> {
        Ok([self.ring(self.rings.send_cq_record)?, self.ring(self.rings.recv_cq_record)?])
    }

    fn state_field(&self, offset: usize, len: usize) -> Result<Region, Error> {
        Ok(self.stateful(self.state.state)?.slice(offset as u64, len)?)
    }

    pub(crate) fn sq_state(&self) -> Result<Region, Error> {
        self.state_field(offset_of!(PostState, sq), size_of::<QueueState>())
    }

    pub(crate) fn rq_state(&self) -> Result<Region, Error> {
        self.state_field(offset_of!(PostState, rq), size_of::<QueueState>())
    }

    pub(crate) fn error_word(&self) -> Result<Region, Error> {
        self.state_field(offset_of!(PostState, error), 8)
    }

    pub(crate) fn scratch_free(&self) -> Result<Region, Error> {
        self.state_field(SCRATCH_FREE, 8)
    }

    /// Whether the host can do all that a poster does.
    pub(crate) fn host_can_post(&self) -> bool {
        [&self.ring_buf, &self.sq_buf, &self.state_buf]
            .iter()
            .all(|buf| buf.region().kind() == Kind::Host)
    }

    fn read(&self, buf: &Buffer, at: u64, out: &mut [u8]) -> Result<(), Error> {
        read(self.gpu.as_ref(), buf, at, out)
    }

    fn write(&self, buf: &Buffer, at: u64, data: &[u8]) -> Result<(), Error> {
        write(self.gpu.as_ref(), buf, at, data)
    }

    /// Reads the posting state, wherever it is.
    pub(crate) fn read_state(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        self.read(&self.state_buf, self.state.state.at + offset as u64, out)
    }

    fn write_state(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        self.write(&self.state_buf, self.state.state.at + offset as u64, data)
    }

    /// The word that aborts every wait, which keeps the memory it is in.
    pub(crate) fn abort_word(&self) -> AbortWord {
        let (gpu, buf) = (self.gpu.clone(), self.ring_buf.clone());
        AbortWord { gpu, buf, at: self.rings.abort.at }
    }

    /// Back to what a new endpoint has, for a QP that was reset and that nobody posts to. Ring CQs
    /// go on where the NIC goes on: what is left in them is thrown away.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let (r, shape) = (&self.rings, &self.shape);
        let sq = offset_of!(PostState, sq);
        let rq = offset_of!(PostState, rq);
        let send_ci = match shape.send_cq_mode {
            CqMode::Ring => self.skip_stale(sq, r.send_cq, r.send_cq_record, shape.log_send_cq)?,
            CqMode::Collapsed => {
                self.write(&self.ring_buf, r.send_cq.at, &vec![0xff; r.send_cq.len])?;
                0
            }
        };
        let recv_ci = self.skip_stale(rq, r.recv_cq, r.recv_cq_record, shape.log_recv)?;
        self.write(&self.state_buf, 0, &vec![0; self.state.qp.at as usize])?;
        self.write_state(SCRATCH_FREE, &u64::MAX.to_le_bytes())?;
        self.write_state(sq + CQ_CI, &send_ci.to_le_bytes())?;
        self.write_state(rq + CQ_CI, &recv_ci.to_le_bytes())?;
        self.write(&self.ring_buf, r.record.at, &[0; 8])?;
        self.write(&self.ring_buf, r.abort.at, &[0; 4])
    }

    /// Consumes what is left in a ring CQ whose queue has its state at `queue`.
    fn skip_stale(&self, queue: usize, cq: Part, record: Part, log: u8) -> Result<u64, Error> {
        let mut word = [0; 8];
        self.read_state(queue + CQ_CI, &mut word)?;
        let mut ci = u64::from_le_bytes(word);
        loop {
            let entry = cq.at + (ci & ((1 << log) - 1)) * CQE as u64;
            self.read(&self.ring_buf, entry + TAIL_OFFSET as u64, &mut word)?;
            if !owned_by_software(CqeTail::from_ne(u64::from_ne_bytes(word)), ci, log) {
                break;
            }
            ci += 1;
        }
        self.write(&self.ring_buf, record.at, &set_ci_word(ci).to_ne_bytes())?;
        Ok(ci)
    }

    /// Writes the exported QP and gives the buffer it is in.
    pub(crate) fn export(&self, qp: &ExportedQp) -> Result<Buffer, Error> {
        let (rings, state) = (self.ring_buf.kernel_addr(), self.state_buf.kernel_addr());
        let (shape, r, s) = (&self.shape, &self.rings, &self.state);
        let cq = |part: Part, record: Part, cqn, log_size, mode: CqMode| Cq {
            buf: rings + part.at,
            dbr: rings + record.at,
            cqn,
            log_size,
            mode: mode as u8,
            reserved: [0; 2],
        };
        let [send_cqn, recv_cqn] = qp.cqns;
        let if_own = |addr: u64| if shape.own_recv { addr } else { 0 };
        let image = Qp {
            sq: self.sq_buf.kernel_addr(),
            rq: if_own(rings + r.rq.at),
            dbr: rings + r.record.at,
            doorbell: qp.doorbell,
            send_cq: cq(
                r.send_cq,
                r.send_cq_record,
                send_cqn,
                shape.log_send_cq,
                shape.send_cq_mode,
            ),
            recv_cq: cq(r.recv_cq, r.recv_cq_record, recv_cqn, shape.log_recv, CqMode::Ring),
            state: state + s.state.at,
            sq_ready: state + s.sq_ready.at,
            rq_ready: if_own(state + s.rq_ready.at),
            sq_span: state + s.span.at,
            abort: rings + r.abort.at,
            scratch: rings + r.scratch.at,
            timeout_ns: qp.timeout_ns,
            scratch_lkey: qp.scratch_lkey,
            qpn: qp.qpn,
            log_sq: shape.log_send,
            log_rq: shape.log_recv,
            log_rq_stride: shape.log_stride,
            inline_words: (shape.inline_bytes / 4) as u8,
            reserved: [0; 44],
        };
        self.write(&self.state_buf, s.qp.at, image.as_bytes())?;
        Ok(self.state_buf.slice(s.qp.at, s.qp.len)?)
    }
}

const CQ_CI: usize = offset_of!(QueueState, cq_ci);
const SCRATCH_FREE: usize = offset_of!(PostState, scratch_free);

/// What the exported QP says that is not in its memory's layout.
pub(crate) struct ExportedQp {
    pub(crate) qpn: u32,
    pub(crate) cqns: [u32; 2],
    /// Kernel address of the doorbell register.
    pub(crate) doorbell: u64,
    pub(crate) scratch_lkey: u32,
    pub(crate) timeout_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn exported(config: &EndpointConfig) -> (Memory, Qp) {
        let memory = Memory::new(config).unwrap();
        let qp =
            ExportedQp { qpn: 5, cqns: [6, 7], doorbell: 0x1000, scratch_lkey: 8, timeout_ns: 9 };
        let buffer = memory.export(&qp).unwrap();
        let mut raw = [0; size_of::<Qp>()];
        buffer.region().read(0, &mut raw).unwrap();
        (memory, Qp::read_from_bytes(&raw).unwrap())
    }

    #[test]
    fn the_exported_qp_points_at_parts_that_do_not_overlap() {
        for config in [
            EndpointConfig::host(),
            EndpointConfig::host().send_cq(CqMode::Ring).recv_sges(4).send_depth(128),
            EndpointConfig::host().recv_depth(1).send_depth(32768),
        ] {
            let (_memory, qp) = exported(&config);
            let (sq, rq) = (64u64 << qp.log_sq, 1u64 << (qp.log_rq + qp.log_rq_stride));
            let bitmap = |log: u8| (1u64 << log).div_ceil(64) * 8;
            let mut parts = [
                (qp.sq, sq),
                (qp.rq, rq),
                (qp.dbr, 8),
                (qp.send_cq.buf, 64 << qp.send_cq.log_size),
                (qp.send_cq.dbr, 8),
                (qp.recv_cq.buf, 64 << qp.recv_cq.log_size),
                (qp.recv_cq.dbr, 8),
                (qp.state, size_of::<PostState>() as u64),
                (qp.sq_ready, bitmap(qp.log_sq)),
                (qp.rq_ready, bitmap(qp.log_rq)),
                (qp.sq_span, 1 << qp.log_sq),
                (qp.abort, 4),
                (qp.scratch, 8 * (SCRATCH_SLOTS as u64 + 1)),
            ];
            parts.sort_unstable();
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?} overlap");
            }
            assert!(parts.iter().all(|(addr, _)| addr.is_multiple_of(ALIGN)));
            let depths = (1u32 << qp.log_sq, 1u32 << qp.log_rq);
            assert_eq!(depths, (config.send_depth, config.recv_depth));
            assert_eq!((qp.qpn, qp.send_cq.cqn, qp.recv_cq.cqn), (5, 6, 7));
            assert_eq!((qp.doorbell, qp.scratch_lkey, qp.timeout_ns), (0x1000, 8, 9));
        }
    }

    #[test]
    fn an_endpoint_without_receives_exports_none() {
        let (_memory, qp) = exported(&EndpointConfig::host().recv_depth(0));
        assert_eq!((qp.rq, qp.rq_ready), (0, 0));
    }
}
