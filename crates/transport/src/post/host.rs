//! One endpoint's queues as the host posts to them: the shared words, and the way to the NIC.

use super::direct::Direct;
use super::protocol::Ring;
use super::rings::Rings;
use super::words::Words;
use super::work::Taken;
use crate::error::decode_error;
use crate::memory::Memory;
use crate::provider::QueuePair;
use crate::{FirstError, QueueKind, TransportError, WorkError};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::export::{ErrorWord, NicFormat, SCRATCH_SLOTS};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::Mtu;

/// Everything the host touches to post to an endpoint and to see it complete.
#[derive(Debug)]
pub(crate) struct HostQueues {
    pub(super) words: Words,
    /// Bytes of a receive; `None` with an SRQ, or without receives.
    pub(super) recv_bytes: Option<u16>,
    pub(super) scratch_free: Cells<AtomicU64>,
    pub(super) scratch: Cells<AtomicU64>,
    pub(super) scratch_lkey: u32,
    pub(super) inline_bytes: usize,
    format: NicFormat,
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
    ) -> Result<Self, TransportError> {
        let shape = &memory.shape;
        let path = match qp.direct() {
            Some(ports) => Path::Direct(Box::new(Direct::new(ports, shape.log_send))),
            None => Path::Rings(Rings::new(memory, qp.cqns())?),
        };
        Ok(Self {
            words: Words::new(memory, qp, doorbell)?,
            recv_bytes: shape.own_recv.then_some(shape.recv_bytes),
            scratch_free: memory.scratch_free()?.cells(0, 1)?,
            scratch: memory.scratch()?.cells(0, SCRATCH_SLOTS + 1)?,
            scratch_lkey,
            inline_bytes: shape.inline_bytes,
            format: shape.format,
            path,
        })
    }

    /// How work gets to the NIC.
    #[inline]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Polls for send completions once, unless another thread is polling.
    #[inline]
    pub(super) fn drain_send(&self) {
        match &self.path {
            Path::Rings(rings) => rings.drain_send(&self.words),
            Path::Direct(direct) => direct.drain_send(&self.words),
        }
    }

    /// Takes one completion of a receive, good or bad; `None` if there is none, or another thread is
    /// polling. The first bad one becomes the endpoint's error.
    #[inline]
    pub(crate) fn take_recv(&self) -> Option<Taken> {
        match &self.path {
            Path::Rings(rings) => rings.take_recv(&self.words),
            Path::Direct(direct) => direct.take_recv(&self.words),
        }
    }

    /// The first error of the send queue as far as it is known.
    pub(crate) fn first_error(&self) -> Option<FirstError> {
        match &self.path {
            Path::Rings(_) => self.words.qp.first_error(),
            Path::Direct(direct) => direct.first_error(),
        }
    }

    /// A connection with this MTU is to be made.
    pub(crate) fn start(&self, mtu: Mtu) {
        if let Path::Rings(rings) = &self.path {
            rings.start(mtu);
        }
    }

    /// Forgets all work in flight; the QP is in RESET.
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

    /// The first error, if there was one.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        match self.words.error() {
            ErrorWord(0) => Ok(()),
            word => Err(self.explain(word)),
        }
    }

    /// The same as receives tell it: where the send CQ alone reports the end of a queue pair, its receives
    /// are flushed with it.
    pub(super) fn check_recv(&self) -> Result<(), TransportError> {
        self.check().map_err(|error| match error {
            TransportError::Work(work)
                if self.format == NicFormat::Bnxt && work.is_flushed_send() =>
            {
                WorkError { queue: QueueKind::Receive, ..work }.into()
            }
            other => other,
        })
    }

    /// The error of an error word. A collapsed CQ may show only the flush that followed an error;
    /// the NIC remembers the error.
    #[cold]
    fn explain(&self, word: ErrorWord) -> TransportError {
        let Words { qpn, qp, send, .. } = &self.words;
        match (decode_error(qpn.get(), self.format, word), &self.path, qp.first_error()) {
            (TransportError::Work(seen), Path::Rings(rings), Some(first))
                if seen.is_flushed_send() =>
            {
                let opcode = rings.opcode(send, first.index);
                let syndrome = Syndrome::of_failure(first.status);
                let (index, vendor) = (first.index as u16, syndrome.usual_vendor());
                WorkError { index, syndrome, vendor, opcode, ..seen }.into()
            }
            (seen, ..) => seen,
        }
    }

    /// Polls the send CQ once, unless another thread is polling; returns the `completed` index.
    pub(crate) fn poll_send(&self) -> Result<u64, TransportError> {
        self.drain_send();
        let completed = self.words.send.completed();
        self.check().map(|()| completed)
    }
}
