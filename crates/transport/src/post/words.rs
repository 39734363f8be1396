//! The words that all posters to an endpoint share, whichever way their work goes to the NIC.

use super::queue::{Bell, WorkQueue};
use crate::memory::{Abort, Memory};
use crate::provider::QueuePair;
use crate::{QueueKind, TransportError, WaitError};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::export::{ErrorWord, NicFormat};
use warpverbs_mlx5::num::Qpn;

/// Counters of both queues, the first error, the abort word; and the QP, to end it.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) qpn: Qpn,
    pub(super) qp: Arc<dyn QueuePair>,
    pub(super) send: WorkQueue,
    pub(super) recv: WorkQueue,
    error: Cells<AtomicU64>,
    abort: Cells<AtomicU32>,
}

impl Words {
    pub(super) fn new(
        memory: &Memory,
        qp: Arc<dyn QueuePair>,
        doorbell: &Region,
    ) -> Result<Self, TransportError> {
        let shape = &memory.shape;
        let qpn = Qpn::new(qp.qpn()).unwrap_or_default();
        let (format, number) = (shape.format, qpn.get());
        let [send_bell, recv_bell] = match format {
            NicFormat::Mlx5 => {
                let [rcv, snd] = memory.records()?;
                let register = Some(doorbell.cells(0, 1)?);
                [Bell::Record(snd.cells(0, 1)?, register), Bell::Record(rcv.cells(0, 1)?, None)]
            }
            NicFormat::Bnxt | NicFormat::Ionic => {
                let alone = |is_send, at: &Region| {
                    let doorbell = at.cells(0, 1)?;
                    Ok::<_, TransportError>(Bell::Alone { format, is_send, doorbell })
                };
                [alone(true, doorbell)?, alone(false, &memory.receive_bell()?)?]
            }
        };
        let (sq_state, rq_state) = (memory.sq_state()?, memory.rq_state()?);
        let (sq_ready, rq_ready) = (memory.sq_ready()?, memory.rq_ready()?);
        Ok(Self {
            qpn,
            qp,
            send: WorkQueue::new(shape.log_send, &sq_state, &sq_ready, send_bell, number)?,
            recv: WorkQueue::new(shape.log_recv, &rq_state, &rq_ready, recv_bell, number)?,
            error: memory.error_word()?.cells(0, 1)?,
            abort: memory.abort()?.cells(0, 1)?,
        })
    }

    pub(super) fn queue(&self, kind: QueueKind) -> &WorkQueue {
        match kind {
            QueueKind::Send => &self.send,
            QueueKind::Receive | QueueKind::Shared => &self.recv,
        }
    }

    /// Moves the QP to ERR.
    pub(super) fn fail_qp(&self) -> Result<(), TransportError> {
        self.qp.fail()
    }

    /// The first error completion, 0 if there was none.
    #[inline]
    pub(super) fn error(&self) -> ErrorWord {
        ErrorWord(self.error[0].load(Acquire))
    }

    /// The first error stays; a later flush must not cover its cause.
    pub(super) fn claim_error(&self, word: ErrorWord) {
        let _ = self.error[0].compare_exchange(0, word.0, AcqRel, Acquire);
    }

    /// Whether waits are to go on.
    pub(super) fn check_abort(&self) -> Result<(), TransportError> {
        match self.abort[0].load(Relaxed) {
            0 => Ok(()),
            _ => Err(self.explain_abort()),
        }
    }

    /// Whether the NIC still executes work. A cheap look, for callers that do not wait.
    pub(super) fn check_running(&self) -> Result<(), TransportError> {
        match self.abort[0].load(Relaxed) == Abort::NicStopped as u32 {
            true => Err(self.explain_abort()),
            false => Ok(()),
        }
    }

    #[cold]
    fn explain_abort(&self) -> TransportError {
        match self.qp.stopped() {
            Some(cause) => cause.into(),
            None => WaitError::Aborted { qpn: self.qpn.get() }.into(),
        }
    }
}
