//! The host as a poster like kernels: work requests, records and completions in memory that a NIC
//! reads and writes.

use super::protocol::{Place, Poller, Ring, must_signal, publish, try_lock, try_reserve};
use super::queue::WorkQueue;
use super::words::Words;
use super::work::{Posted, Received, Taken, control_byte};
use crate::TransportError;
use crate::memory::Memory;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::cqe::{Cqe, CqeTail, ErrorSide, gives_back, owned_by_software};
use warpverbs_mlx5::doorbell::set_ci_word;
use warpverbs_mlx5::export::{CqMode, ErrorWord, Outcome};
use warpverbs_mlx5::num::{WQEBB, WqeIndex};
use warpverbs_mlx5::opcode::{CqeOpcode, SendOpcode};
use warpverbs_mlx5::segment::CtrlSeg;
use warpverbs_rdma::SendFlags;

/// 64-bit words of a CQE, and of a WQEBB.
const WORDS: usize = 8;
const INDEX: usize = offset_of!(CtrlSeg, wqe_index);
const FLAGS: usize = offset_of!(CtrlSeg, fm_ce_se);

/// A completion queue.
#[derive(Debug)]
struct CompletionQueue {
    entries: Cells<AtomicU64>,
    record: Cells<AtomicU32>,
    log_size: u8,
    mode: CqMode,
}

impl CompletionQueue {
    fn new(
        buf: &Region,
        record: &Region,
        log_size: u8,
        mode: CqMode,
    ) -> Result<Self, TransportError> {
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

    /// Gives the entries from `from` to `ci`, which were taken, back to the NIC, unless that can wait.
    fn give_back(&self, from: u64, ci: u64) {
        if gives_back(from, ci, self.log_size) {
            // Release: the entries were read before.
            self.record[0].store(set_ci_word(ci), Release);
        }
    }
}

/// The rings and completion queues of an endpoint.
#[derive(Debug)]
pub(crate) struct Rings {
    sq: Cells<AtomicU64>,
    span: Cells<AtomicU8>,
    /// None with an SRQ, or without receives.
    rq: Option<Cells<AtomicU64>>,
    log_rq_stride: u8,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
}

impl Rings {
    /// Over `memory`, all of which is host memory.
    pub(crate) fn new(memory: &Memory) -> Result<Self, TransportError> {
        let shape = &memory.shape;
        let [send_record, recv_record] = memory.cq_records()?;
        let (send_cq, recv_cq) = (memory.send_cq()?, memory.recv_cq()?);
        let (send_log, send_mode) = (shape.log_send_cq, shape.send_cq_mode);
        let rq = match shape.own_recv {
            true => Some(memory.rq()?.cells(0, 1 << (shape.log_recv + shape.log_stride - 3))?),
            false => None,
        };
        Ok(Self {
            sq: memory.sq().cells(0, WORDS << shape.log_send)?,
            span: memory.sq_span()?.cells(0, 1 << shape.log_send)?,
            rq,
            log_rq_stride: shape.log_stride,
            send_cq: CompletionQueue::new(&send_cq, &send_record, send_log, send_mode)?,
            recv_cq: CompletionQueue::new(&recv_cq, &recv_record, shape.log_recv_cq, CqMode::Ring)?,
        })
    }

    /// Reserve, gate, write, publish. `None` if there is no room.
    #[inline]
    pub(super) fn try_post(
        &self,
        queue: &WorkQueue,
        wqe: &[u8],
        flags: SendFlags,
    ) -> Option<Posted> {
        let n = (wqe.len() / WQEBB) as u64;
        let base = try_reserve(queue, n)?;
        let signaled = flags.contains(SendFlags::SIGNALED) || must_signal(queue, base, n);
        let mut head = [0; 16];
        head.copy_from_slice(&wqe[..16]);
        head[INDEX..INDEX + 2].copy_from_slice(&(base as u16).to_be_bytes());
        head[FLAGS] = control_byte(flags, signaled);
        store(&self.sq, base * 8, &head);
        store(&self.sq, base * 8 + 2, &wqe[16..]);
        if signaled {
            let slot = base & (queue.depth() - 1);
            self.span[slot as usize].store(n as u8, Relaxed);
        } else {
            queue.unsignaled().fetch_max(base + n, Relaxed);
        }
        publish(queue, base, n);
        Some(Posted { index: base, end: base + n, signaled })
    }

    /// The same for a receive.
    pub(super) fn try_post_recv(&self, queue: &WorkQueue, slot: &[u8]) -> Option<Posted> {
        let rq = self.rq.as_ref()?;
        let index = try_reserve(queue, 1)?;
        store(rq, index << (self.log_rq_stride - 3), slot);
        publish(queue, index, 1);
        Some(Posted { index, end: index + 1, signaled: true })
    }

    /// Opcode of the send work request at `index`, which is in flight.
    pub(super) fn opcode(&self, queue: &WorkQueue, index: u64) -> SendOpcode {
        let slot = (index & (queue.depth() - 1)) as usize;
        let [_, _, _, opcode, ..] = self.sq[slot * WORDS].load(Relaxed).to_ne_bytes();
        SendOpcode::from_value(opcode)
    }

    /// Polls the send CQ once, unless another thread is polling.
    #[inline]
    pub(super) fn drain_send(&self, q: &Words) {
        let Some(mut poller) = try_lock(&q.send) else { return };
        match self.send_cq.mode {
            CqMode::Collapsed => {
                self.take_send(q, &mut poller, 0, self.send_cq.tail(0));
            }
            CqMode::Ring => self.drain_send_ring(q, &mut poller),
        }
    }

    fn drain_send_ring(&self, q: &Words, poller: &mut Poller<'_, WorkQueue>) {
        let mut ci = q.send.cq_ci().load(Relaxed);
        let from = ci;
        loop {
            let tail = self.send_cq.tail(ci);
            if !owned_by_software(tail, ci, self.send_cq.log_size)
                || !self.take_send(q, poller, ci, tail)
            {
                break;
            }
            ci += 1;
        }
        if ci != from {
            q.send.cq_ci().store(ci, Relaxed);
            self.send_cq.give_back(from, ci);
        }
    }

    /// Acts on one send CQE; false if it cannot be counted, and has to stay in a ring CQ.
    #[inline]
    fn take_send(
        &self,
        q: &Words,
        poller: &mut Poller<'_, WorkQueue>,
        ci: u64,
        tail: CqeTail,
    ) -> bool {
        match tail.opcode() {
            CqeOpcode::Req => match poller.place(tail.wqe_counter.get()) {
                Place::InFlight(index) => {
                    let slot = (index & (q.send.depth() - 1)) as usize;
                    poller.retire(index + u64::from(self.span[slot].load(Relaxed).max(1)));
                    true
                }
                Place::NotYet => false,
                Place::Never if self.send_cq.mode == CqMode::Collapsed => false,
                Place::Never => {
                    let (opcode, counter) = (tail.wqe_opcode, tail.wqe_counter.get());
                    q.claim_error(ErrorWord::failed(Outcome::StrayCqe, 0, 0, opcode, counter));
                    true
                }
            },
            CqeOpcode::Invalid => false,
            _ => {
                q.claim_error(error_word(&self.send_cq.entry(ci, tail)));
                true
            }
        }
    }

    /// Takes one completion off the receive CQ, good or bad; `None` if there is none, or another
    /// thread is polling. The first bad one becomes the endpoint's error.
    pub(super) fn take_recv(&self, q: &Words) -> Option<Taken> {
        let cq = &self.recv_cq;
        let mut poller = try_lock(&q.recv)?;
        let ci = q.recv.cq_ci().load(Relaxed);
        let tail = cq.tail(ci);
        if !owned_by_software(tail, ci, cq.log_size) {
            return None;
        }
        let raw = cq.entry(ci, tail);
        q.recv.cq_ci().store(ci + 1, Relaxed);
        cq.give_back(ci, ci + 1);
        match Cqe::parse(&raw) {
            Ok(Cqe::Receive { wqe_counter, kind, byte_cnt: byte_len, solicited, .. }) => {
                let mut index = wqe_counter.into();
                if self.rq.is_some() {
                    index = WqeIndex(wqe_counter).widen(poller.completed());
                    poller.retire(poller.completed() + 1);
                }
                let received = Received { byte_len, kind, solicited, index };
                Some(Taken { number: wqe_counter, received: Some(received) })
            }
            parsed => {
                q.claim_error(error_word(&raw));
                let Ok(Cqe::Error { wqe_counter: number, .. }) = parsed else { return None };
                Some(Taken { number, received: None })
            }
        }
    }
}

/// The error word of the CQE of an error.
fn error_word(raw: &[u8; 64]) -> ErrorWord {
    match Cqe::parse(raw) {
        Ok(Cqe::Error { side, wqe_counter, opcode, syndrome, vendor, .. }) => {
            let cause = match side {
                ErrorSide::Requester => Outcome::Requester,
                ErrorSide::Responder => Outcome::Responder,
            };
            ErrorWord::failed(cause, syndrome.value(), vendor, opcode.value(), wqe_counter)
        }
        // A CQE of another kind; nothing after it counts.
        _ => {
            let counter = u16::from_be_bytes([raw[60], raw[61]]);
            ErrorWord::failed(Outcome::BadError, 0, 0, raw[56], counter)
        }
    }
}

/// Stores whole words of a work request from `first` on, going round at the ring's end.
#[inline]
fn store(ring: &Cells<AtomicU64>, first: u64, bytes: &[u8]) {
    let mask = ring.len() - 1;
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in (first as usize..).zip(words) {
        ring[at & mask].store(u64::from_ne_bytes(*word), Relaxed);
    }
}
