//! One endpoint's queues as the host posts to them.

use super::protocol::{Ring, elect, in_flight, retire};
use super::queue::WorkQueue;
use crate::error::{QueueKind, WorkError};
use crate::layout::Memory;
use crate::provider::QueuePair;
use crate::{Error, WaitError};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::cqe::{Cqe, CqeTail, ErrorSide, owned_by_software};
use warpverbs_mlx5::doorbell::set_ci_word;
use warpverbs_mlx5::export::{CqMode, ErrorWord, SCRATCH_SLOTS};
use warpverbs_mlx5::num::Qpn;
use warpverbs_mlx5::opcode::{CqeOpcode, SendOpcode};
use warpverbs_mlx5::syndrome::Syndrome;

/// `cqe_opcode` of an error word that a poster wrote when it gave up at the gate.
pub(crate) const GAVE_UP: u8 = 0x7f;
/// 64-bit words of a CQE, and of a WQEBB.
const WORDS: usize = 8;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    entries: Cells<AtomicU64>,
    record: Cells<AtomicU32>,
    log_size: u8,
    mode: CqMode,
}

impl CompletionQueue {
    pub(crate) fn new(
        buf: &Region,
        record: &Region,
        log_size: u8,
        mode: CqMode,
    ) -> Result<Self, Error> {
        let entries = buf.cells(0, WORDS << log_size)?;
        Ok(Self { entries, record: record.cells(0, 1)?, log_size, mode })
    }

    fn first_word(&self, ci: u64) -> usize {
        (ci & ((1 << self.log_size) - 1)) as usize * WORDS
    }

    /// Acquire, pairs with the NIC's release of a CQE: the entry and all it reports are visible.
    #[inline]
    fn tail(&self, ci: u64) -> CqeTail {
        CqeTail::from_ne(self.entries[self.first_word(ci) + 7].load(Acquire))
    }

    fn entry(&self, ci: u64, tail: CqeTail) -> [u8; 64] {
        let at = self.first_word(ci);
        let mut raw = [0; 64];
        let (words, _) = raw.as_chunks_mut::<8>();
        for (bytes, word) in words.iter_mut().zip(&self.entries[at..at + 7]) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        words[7] = tail.to_ne().to_ne_bytes();
        raw
    }

    /// Gives the entries below `ci` back to the NIC.
    fn set_ci(&self, ci: u64) {
        // Release: the entries were read before.
        self.record[0].store(set_ci_word(ci), Release);
    }
}

/// Everything the host touches to post to an endpoint and to see it complete.
#[derive(Debug)]
pub(crate) struct HostQueues {
    pub(crate) qpn: Qpn,
    qp: Arc<dyn QueuePair>,
    pub(crate) send: WorkQueue,
    pub(crate) recv: WorkQueue,
    pub(crate) sq: Cells<AtomicU64>,
    pub(crate) span: Cells<AtomicU8>,
    /// None with an SRQ, or without receives.
    pub(crate) rq: Option<Cells<AtomicU64>>,
    pub(crate) log_rq_stride: u8,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) error: Cells<AtomicU64>,
    pub(crate) scratch_free: Cells<AtomicU64>,
    pub(crate) scratch: Cells<AtomicU64>,
    pub(crate) scratch_lkey: u32,
    pub(crate) abort: Cells<AtomicU32>,
    pub(crate) inline_bytes: usize,
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
        let [send_record, recv_record] = memory.cq_records()?;
        let (send_log, recv_log) = (shape.log_send_cq, shape.log_recv);
        let rq = match shape.own_recv {
            true => Some(memory.rq()?.cells(0, 1 << (shape.log_recv + shape.log_stride - 3))?),
            false => None,
        };
        Ok(Self {
            qpn,
            qp,
            send: WorkQueue::new(shape.log_send, &sq_state, &sq_ready, &snd, doorbell)?,
            recv: WorkQueue::new(shape.log_recv, &rq_state, &rq_ready, &rcv, None)?,
            sq: memory.sq()?.cells(0, WORDS << shape.log_send)?,
            span: memory.sq_span()?.cells(0, 1 << shape.log_send)?,
            rq,
            log_rq_stride: shape.log_stride,
            send_cq: CompletionQueue::new(
                &memory.send_cq()?,
                &send_record,
                send_log,
                shape.send_cq_mode,
            )?,
            recv_cq: CompletionQueue::new(
                &memory.recv_cq()?,
                &recv_record,
                recv_log,
                CqMode::Ring,
            )?,
            error: memory.error_word()?.cells(0, 1)?,
            scratch_free: memory.scratch_free()?.cells(0, 1)?,
            scratch: memory.scratch()?.cells(0, SCRATCH_SLOTS + 1)?,
            scratch_lkey,
            abort: memory.abort()?.cells(0, 1)?,
            inline_bytes: shape.inline_bytes,
        })
    }

    pub(crate) fn queue(&self, kind: QueueKind) -> &WorkQueue {
        match kind {
            QueueKind::Send => &self.send,
            QueueKind::Receive => &self.recv,
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
        match (decode_error(self.qpn, word), self.qp.first_error()) {
            (Error::Work(seen), Some(first)) if seen.is_flushed_send() => {
                let slot = (first.index & (self.send.depth() - 1)) as usize;
                let [_, _, _, opcode, ..] = self.sq[slot * WORDS].load(Relaxed).to_ne_bytes();
                let opcode = Some(SendOpcode::from_value(opcode));
                let (index, syndrome) = (first.index as u16, first.syndrome);
                let vendor = syndrome.usual_vendor();
                WorkError { index, syndrome, vendor, opcode, ..seen }.into()
            }
            (seen, _) => seen,
        }
    }

    pub(crate) fn check_abort(&self) -> Result<(), Error> {
        match self.abort[0].load(Relaxed) {
            0 => Ok(()),
            _ => Err(WaitError::Aborted { qpn: self.qpn.get() }.into()),
        }
    }

    fn claim_error(&self, raw: &[u8; 64]) {
        let word = match Cqe::parse(raw) {
            Ok(Cqe::Error { side, wqe_counter, opcode, syndrome, vendor, .. }) => {
                let (side, syndrome) = (error_opcode(side), syndrome.value());
                ErrorWord::new(side, syndrome, vendor, opcode.value(), wqe_counter)
            }
            // Whatever this is, it is not a completion this side knows; nothing after it counts.
            _ => {
                ErrorWord::new(raw[63] >> 4, 0, 0, raw[56], u16::from_be_bytes([raw[60], raw[61]]))
            }
        };
        // The first error stays; a later flush must not cover its cause.
        let _ = self.error[0].compare_exchange(0, word.0, AcqRel, Acquire);
    }

    /// Looks at the send CQ once, unless somebody else does, and says how far the queue has come.
    pub(crate) fn poll_send(&self) -> Result<u64, Error> {
        elect(&self.send, || self.drain_send());
        let completed = self.send.completed().load(Acquire);
        self.check().map(|()| completed)
    }

    /// The elected poller's part.
    #[inline]
    pub(crate) fn drain_send(&self) {
        match self.send_cq.mode {
            CqMode::Collapsed => {
                self.take_send(0, self.send_cq.tail(0));
            }
            CqMode::Ring => self.drain_send_ring(),
        }
    }

    fn drain_send_ring(&self) {
        let mut ci = self.send.cq_ci().load(Relaxed);
        let from = ci;
        loop {
            let tail = self.send_cq.tail(ci);
            if !owned_by_software(tail, ci, self.send_cq.log_size) || !self.take_send(ci, tail) {
                break;
            }
            ci += 1;
        }
        if ci != from {
            self.send.cq_ci().store(ci, Relaxed);
            self.send_cq.set_ci(ci);
        }
    }

    /// Acts on one send CQE; false if it reports nothing that is in flight.
    #[inline]
    fn take_send(&self, ci: u64, tail: CqeTail) -> bool {
        match tail.opcode() {
            CqeOpcode::Req => {
                let Some(index) = in_flight(&self.send, tail.wqe_counter.get()) else {
                    return false;
                };
                let slot = (index & (self.send.depth() - 1)) as usize;
                retire(&self.send, index + u64::from(self.span[slot].load(Relaxed).max(1)));
                true
            }
            CqeOpcode::Invalid => false,
            _ => {
                self.claim_error(&self.send_cq.entry(ci, tail));
                true
            }
        }
    }

    /// Takes one completion off the receive CQ, good or bad; `None` if there is none, or somebody
    /// else is at it. The first bad one becomes the endpoint's error.
    pub(crate) fn take_recv(&self) -> Option<Cqe> {
        let cq = &self.recv_cq;
        elect(&self.recv, || {
            let ci = self.recv.cq_ci().load(Relaxed);
            let tail = cq.tail(ci);
            if !owned_by_software(tail, ci, cq.log_size) {
                return None;
            }
            let raw = cq.entry(ci, tail);
            self.recv.cq_ci().store(ci + 1, Relaxed);
            cq.set_ci(ci + 1);
            let cqe = Cqe::parse(&raw);
            if !matches!(cqe, Ok(Cqe::Receive { .. })) {
                self.claim_error(&raw);
            } else if self.rq.is_some() {
                retire(&self.recv, self.recv.completed().load(Relaxed) + 1);
            }
            cqe.ok()
        })?
    }

    /// Stores whole words of a work request from `first` on, going round at the ring's end.
    #[inline]
    pub(crate) fn store(ring: &Cells<AtomicU64>, first: u64, bytes: &[u8]) {
        let mask = ring.len() - 1;
        let (words, _) = bytes.as_chunks::<8>();
        for (at, word) in (first as usize..).zip(words) {
            ring[at & mask].store(u64::from_ne_bytes(*word), Relaxed);
        }
    }
}

const fn error_opcode(side: ErrorSide) -> u8 {
    match side {
        ErrorSide::Requester => 13,
        ErrorSide::Responder => 14,
    }
}

/// What an error word says.
pub(crate) fn decode_error(qpn: Qpn, word: ErrorWord) -> Error {
    let qpn = qpn.get();
    if word.cqe_opcode() == GAVE_UP {
        return WaitError::PosterGaveUp { qpn }.into();
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
