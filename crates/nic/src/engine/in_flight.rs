//! A WQE from its start to its retirement.

use super::access::Refusal;
use crate::slots::QpSlot;
use crate::violation::Rule;
use warpverbs_mem::MemError;
use warpverbs_mlx5::cqe::{DatagramSource, ReceivedKind};
use warpverbs_mlx5::flags::Completion;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::Wqe;

/// A WQE that was started and is not finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) info: WqeInfo,
    /// Its backend reports its completion. Otherwise it completes with the WQE before it.
    pub(crate) away: bool,
    /// A READ or an atomic.
    pub(crate) reads: bool,
}

/// The part of a WQE that is needed to retire it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WqeInfo {
    pub(crate) index: u64,
    pub(crate) wqebbs: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) completion: Completion,
    pub(crate) bytes: u64,
    /// Bytes for the CQE.
    pub(crate) brought: u32,
}

impl WqeInfo {
    /// Of the WQE at `index`; `brought` is set when it starts.
    #[inline]
    pub(crate) fn of(wqe: &Wqe<'_>, index: u64) -> Self {
        Self {
            index,
            wqebbs: wqe.wqebbs() as u64,
            opcode: wqe.op.opcode(),
            completion: wqe.flags.completion,
            bytes: wqe.op.byte_len(),
            brought: 0,
        }
    }
}

/// A WQE that was started.
pub(crate) struct Started {
    /// The backend reports its completion; otherwise it is complete.
    pub(crate) away: bool,
    /// Bytes for the requester's CQE: those of a READ or an atomic.
    pub(crate) brought: u32,
    /// The receive to complete with it, if it is complete.
    pub(crate) delivery: Option<Delivery>,
}

/// A receive that was taken and is completed when the payload is in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) slot: QpSlot,
    pub(crate) qpn: u32,
    /// [`ReceiveQueue::generation`] at the time.
    pub(crate) generation: u32,
    pub(crate) kind: ReceivedKind,
    pub(crate) index: u64,
    pub(crate) byte_cnt: u32,
    pub(crate) solicited: bool,
    pub(crate) from: Option<DatagramSource>,
}

/// Why a WQE was not started.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Earlier WQEs of the queue must end first.
    Drain,
    /// A CQ must have a CQE first, which wakes the queue.
    Wait,
    /// The peer refused.
    Refused { peer: QpSlot, refusal: Refusal },
    /// No QP answers.
    NoAnswer,
    /// The requester's own fault.
    Local { syndrome: Syndrome, rule: Rule },
    /// A copy engine failed.
    Copy(MemError),
}

impl From<MemError> for Stop {
    fn from(error: MemError) -> Self {
        Self::Copy(error)
    }
}

pub(crate) fn local(rule: Rule) -> Stop {
    Stop::Local { syndrome: rule.syndrome().unwrap_or(Syndrome::LocalQpOp), rule }
}
