//! The receive side of a QP: what it grants to its peer, and where its receives come from.

use super::payload::CqeTarget;
use super::send::Executor;
use crate::format::{RecvFormat, Sges};
use crate::slots::{QpSlot, SrqSlot};
use crate::violation::Rule;
use std::collections::VecDeque;
use warpverbs_mem::{Access, KeyHint, QueueRecord, ReceiveRing};
use warpverbs_rdma::{QpState, QueueKind};

/// Receives posted to the QP itself.
#[derive(Debug)]
pub(crate) struct OwnReceives {
    pub(crate) qpn: u32,
    pub(crate) ring: ReceiveRing,
    pub(crate) format: RecvFormat,
    pub(crate) record: QueueRecord,
    /// Index of the next receive to take.
    pub(crate) taken: u64,
    /// One past the last receive known to be posted.
    pub(crate) posted: u64,
    /// The record was invalid, and is not read any more.
    pub(crate) broken: bool,
}

impl OwnReceives {
    /// The index of the next receive, if one is posted. The record is read only when those known
    /// have run out.
    pub(crate) fn next(&mut self) -> Result<Option<u64>, Rule> {
        if self.taken == self.posted && !self.broken {
            if self.record.fetch().is_err() {
                self.broken = true;
                return Err(Rule::CopyFailed { kind: self.record.kind() });
            }
            let posted = self.announced().inspect_err(|_| self.broken = true)?;
            let (outstanding, depth) = (posted - self.taken, self.ring.depth());
            if outstanding > depth {
                self.broken = true;
                return Err(Rule::ReceivesBeyondRing { posted, outstanding, depth });
            }
            self.posted = posted;
        }
        Ok((self.taken != self.posted).then_some(self.taken))
    }

    /// Receives posted by what the record says.
    fn announced(&self) -> Result<u64, Rule> {
        self.format.posted(&self.record, self.posted, (QueueKind::Receive, self.qpn))
    }

    /// The segments of the receive at `index`.
    pub(crate) fn load<'a>(
        &self,
        index: u64,
        scratch: &'a mut [u64; 128],
    ) -> Result<Sges<'a>, Rule> {
        self.ring.fetch(index).map_err(|_| Rule::CopyFailed { kind: self.ring.kind() })?;
        let words = self.ring.load(index, scratch).len() / 8;
        self.format.receive(&mut scratch[..words], index)
    }

    /// Receives posted and not taken, as far as the record was fetched by [`Self::next`]. `None` if
    /// the record is invalid.
    pub(crate) fn left(&self) -> Option<u32> {
        let left = self.announced().ok()? - self.taken;
        (!self.broken && left <= self.ring.depth()).then_some(left as u32)
    }

    /// Takes the next receive, if one is posted.
    pub(crate) fn take_next(&mut self) -> Result<Option<u64>, Rule> {
        let next = self.next()?;
        self.taken += u64::from(next.is_some());
        Ok(next)
    }
}

/// Where receives come from.
#[derive(Debug)]
pub(crate) enum Receives {
    /// The QP takes no messages.
    None,
    /// The QP's own ring.
    Own(OwnReceives),
    /// An SRQ, by its slot.
    Shared(SrqSlot),
}

/// Rights of the peer, or of senders of datagrams.
#[derive(Debug)]
pub(crate) struct Grants {
    pub(crate) access: Access,
    /// Datagrams must carry it.
    pub(crate) qkey: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_dest_rd_atomic: u8,
}

impl Default for Grants {
    fn default() -> Self {
        Self { access: Access::empty(), qkey: 0, min_rnr_timer: 0, max_dest_rd_atomic: 0 }
    }
}

/// Counters of a queue's receives so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) receives: u64,
    pub(crate) bytes: u64,
    pub(crate) flushed: u64,
}

/// The responder's half of a QP.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) qpn: u32,
    pub(crate) slot: QpSlot,
    pub(crate) pd: u32,
    pub(crate) state: QpState,
    /// The QP whose requests are answered.
    pub(crate) peer_qpn: Option<u32>,
    /// The backend that receives messages; loopback answers peers only if it is loopback.
    pub(crate) executor: Executor,
    /// In ERR: the backend still has receives. It reports when all are flushed.
    pub(crate) flushing: bool,
    pub(crate) grants: Grants,
    pub(crate) source: Receives,
    /// Receives that were taken and are not complete: their payload is in flight.
    pub(crate) open: VecDeque<u64>,
    /// Counts RESETs: deliveries of an earlier generation are dropped.
    pub(crate) generation: u32,
    pub(crate) cqes: CqeTarget,
    pub(crate) remote_hint: KeyHint,
    pub(crate) scatter_hint: KeyHint,
    /// A fault: this many messages still meet "receiver not ready".
    pub(crate) refuse: u32,
    pub(crate) counts: Counts,
}

impl ReceiveQueue {
    /// This is QP `qpn`, and it answers requests of QP `from`.
    #[inline]
    pub(crate) fn answers(&self, from: u32, qpn: u32) -> bool {
        self.qpn == qpn
            && self.executor == Executor::Loopback
            && self.state.responds()
            && self.peer_qpn == Some(from)
    }

    /// Receive `index` is about to be completed; false if it is not open (any more).
    pub(crate) fn close(&mut self, index: u64) -> bool {
        let at = self.open.iter().position(|&open| open == index);
        at.and_then(|at| self.open.remove(at)).is_some()
    }

    /// Forgets all work.
    pub(crate) fn reset(&mut self) {
        if let Receives::Own(own) = &mut self.source {
            (own.taken, own.posted, own.broken) = (0, 0, false);
            own.record.forget();
        }
        self.open.clear();
        self.cqes.payload.clear();
        self.generation = self.generation.wrapping_add(1);
        self.refuse = 0;
        self.flushing = false;
        self.executor = self.executor.after_reset();
    }
}
