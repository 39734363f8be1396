//! One endpoint's queues as the host posts to them.

use super::direct::Direct;
use super::protocol::Ring;
use super::queue::WorkQueue;
use super::recv::Taken;
use super::rings::{Rings, error_opcode};
use crate::QueueKind;
use crate::error::WorkError;
use crate::layout::{Abort, Memory};
use crate::provider::QueuePair;
use crate::{Error, FirstError, WaitError};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::cqe::ErrorSide;
use warpverbs_mlx5::export::{ErrorWord, SCRATCH_SLOTS};
use warpverbs_mlx5::num::Qpn;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;

/// `cqe_opcode` of an error word that a poster wrote when it gave up at the gate.
pub(crate) const GAVE_UP: u8 = 0x7f;
/// The same for a completion that names no work in flight.
pub(crate) const STRAY_COMPLETION: u8 = 0x7e;
/// Everything the host touches to post to an endpoint and to see it complete.
#[derive(Debug)]
pub(crate) struct HostQueues {
    pub(crate) qpn: Qpn,
    qp: Arc<dyn QueuePair>,
    pub(crate) send: WorkQueue,
    pub(crate) recv: WorkQueue,
    /// log2 of the bytes of a receive; `None` with an SRQ, or without receives.
    pub(super) log_recv_stride: Option<u8>,
    error: Cells<AtomicU64>,
    pub(super) scratch_free: Cells<AtomicU64>,
    pub(super) scratch: Cells<AtomicU64>,
    pub(super) scratch_lkey: u32,
    abort: Cells<AtomicU32>,
    pub(super) inline_bytes: usize,
    path: Path,
}

/// How work gets to the NIC and completions from it. All else is the same.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Path {
    /// Through memory that the NIC reads and writes.
    Rings(Rings),
    /// By calls of the NIC's.
    Direct(Box<Direct>),
}

impl HostQueues {
    /// Over `memory`, all of which is host memory.
    pub(crate) fn new(
        memory: &Memory,
        qp: Arc<dyn QueuePair>,
        doorbell: &Region,
        scratch_lkey: u32,
    ) -> Result<Self, Error> {
        let shape = &memory.shape;
        let qpn = Qpn::new(qp.qpn()).unwrap_or_default();
        let [rcv, snd] = memory.records()?;
        let doorbell = Some((doorbell, qpn.get()));
        let (sq_state, rq_state) = (memory.sq_state()?, memory.rq_state()?);
        let (sq_ready, rq_ready) = (memory.sq_ready()?, memory.rq_ready()?);
        let path = match qp.direct() {
            Some(ports) => Path::Direct(Box::new(Direct::new(ports, shape))),
            None => Path::Rings(Rings::new(memory)?),
        };
        Ok(Self {
            qpn,
            qp,
            send: WorkQueue::new(shape.log_send, &sq_state, &sq_ready, &snd, doorbell)?,
            recv: WorkQueue::new(shape.log_recv, &rq_state, &rq_ready, &rcv, None)?,
            log_recv_stride: shape.own_recv.then_some(shape.log_stride),
            error: memory.error_word()?.cells(0, 1)?,
            scratch_free: memory.scratch_free()?.cells(0, 1)?,
            scratch: memory.scratch()?.cells(0, SCRATCH_SLOTS + 1)?,
            scratch_lkey,
            abort: memory.abort()?.cells(0, 1)?,
            inline_bytes: shape.inline_bytes,
            path,
        })
    }

    /// How work gets to the NIC.
    #[inline]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the send completions once, unless somebody else does.
    #[inline]
    pub(super) fn drain_send(&self) {
        match &self.path {
            Path::Rings(rings) => rings.drain_send(self),
            Path::Direct(direct) => direct.drain_send(self),
        }
    }

    /// Takes one completion of a receive, good or bad; `None` if there is none, or somebody else is
    /// at it. The first bad one becomes the endpoint's error.
    #[inline]
    pub(crate) fn take_recv(&self) -> Option<Taken> {
        match &self.path {
            Path::Rings(rings) => rings.take_recv(self),
            Path::Direct(direct) => direct.take_recv(self),
        }
    }

    /// The first error of the send queue as far as anybody remembers it.
    pub(crate) fn first_error(&self) -> Option<FirstError> {
        match &self.path {
            Path::Rings(_) => self.qp.first_error(),
            Path::Direct(direct) => direct.first_error(),
        }
    }

    /// Everything under way is forgotten; the QP is in RESET.
    pub(crate) fn reset(&self) {
        if let Path::Direct(direct) = &self.path {
            direct.reset();
        }
    }

    /// The QP is being moved to ERR.
    pub(crate) fn has_failed(&self) {
        if let Path::Direct(direct) = &self.path {
            direct.has_failed();
        }
    }

    /// Moves the QP to ERR.
    pub(super) fn fail_qp(&self) -> Result<(), Error> {
        self.qp.fail()
    }

    pub(crate) fn queue(&self, kind: QueueKind) -> &WorkQueue {
        match kind {
            QueueKind::Send => &self.send,
            QueueKind::Receive | QueueKind::Shared => &self.recv,
        }
    }

    /// The first error, if there was one.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.error[0].load(Acquire) {
            0 => Ok(()),
            word => Err(self.explain(ErrorWord(word))),
        }
    }

    /// What an error word says. A collapsed CQ may show only the flush that followed an error; the
    /// NIC remembers the error.
    #[cold]
    fn explain(&self, word: ErrorWord) -> Error {
        match (decode_error(self.qpn, word), &self.path, self.qp.first_error()) {
            (Error::Work(seen), Path::Rings(rings), Some(first)) if seen.is_flushed_send() => {
                let opcode = Some(rings.opcode(&self.send, first.index));
                let (index, syndrome) = (first.index as u16, first.syndrome);
                let vendor = syndrome.usual_vendor();
                WorkError { index, syndrome, vendor, opcode, ..seen }.into()
            }
            (seen, ..) => seen,
        }
    }

    pub(crate) fn check_abort(&self) -> Result<(), Error> {
        match self.abort[0].load(Relaxed) {
            0 => Ok(()),
            _ => Err(self.explain_abort()),
        }
    }

    #[cold]
    fn explain_abort(&self) -> Error {
        match self.qp.stopped() {
            Some(cause) => cause.into(),
            None => WaitError::Aborted { qpn: self.qpn.get() }.into(),
        }
    }

    /// Whether the NIC still executes work. A cheap look, for those who do not wait.
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        match self.abort[0].load(Relaxed) == Abort::NicStopped as u32 {
            true => Err(self.explain_abort()),
            false => Ok(()),
        }
    }

    /// The first error stays; a later flush must not cover its cause.
    pub(super) fn claim_error(&self, word: ErrorWord) {
        let _ = self.error[0].compare_exchange(0, word.0, AcqRel, Acquire);
    }

    /// Looks at the send CQ once, unless somebody else does, and says how far the queue has come.
    pub(crate) fn poll_send(&self) -> Result<u64, Error> {
        self.drain_send();
        let completed = self.send.completed();
        self.check().map(|()| completed)
    }
}

/// What an error word says.
pub(crate) fn decode_error(qpn: Qpn, word: ErrorWord) -> Error {
    let qpn = qpn.get();
    if word.cqe_opcode() == GAVE_UP {
        return WaitError::PosterGaveUp { qpn }.into();
    }
    if word.cqe_opcode() == STRAY_COMPLETION {
        return WaitError::StrayCompletion { qpn, counter: word.wqe_counter() }.into();
    }
    let responder = word.cqe_opcode() == error_opcode(ErrorSide::Responder);
    let opcode = (!responder).then(|| SendOpcode::from_value(word.wqe_opcode()));
    let queue = if responder { QueueKind::Receive } else { QueueKind::Send };
    let (index, vendor) = (word.wqe_counter(), word.vendor());
    let syndrome = Syndrome::from_value(word.syndrome());
    WorkError { qpn, queue, index, opcode, syndrome, vendor }.into()
}

/// A wait that begins its clock only when it has to.
pub(crate) struct Patience {
    limit: Duration,
    spins: u32,
    since: Option<Instant>,
}

/// Pauses before a waiter begins to yield its core and to look at the clock.
const SPINS: u32 = 256;

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, spins: 0, since: None }
    }

    /// Waits a little; false if the time is over.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        self.spins += 1;
        if self.spins < SPINS && !self.limit.is_zero() {
            std::hint::spin_loop();
            return true;
        }
        self.pause_slowly()
    }

    #[cold]
    fn pause_slowly(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        std::thread::yield_now();
        since.elapsed() < self.limit
    }
}
