//! What is known of a WQE from its start to its retirement.

use super::access::Refusal;
use super::atomic::RemoteAtomic;
use super::transfer::{Fault, Transfer};
use crate::slots::QpSlot;
use crate::violation::Rule;
use warpverbs_mem::{KeyTable, MemError};
use warpverbs_mlx5::cqe::ReceivedKind;
use warpverbs_mlx5::flags::Completion;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::Wqe;

/// A WQE that was started and is not finished.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) info: WqeInfo,
    pub(crate) work: Work,
    /// In a box: most have none, and all are copied into the queue and out of it.
    pub(crate) delivery: Option<Box<Delivery>>,
    /// A READ or an atomic.
    pub(crate) reads: bool,
}

/// What retiring a WQE needs to know of it.
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
    /// Of the WQE at `index`, before it is known what it brings.
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
    /// What is still to be done; `None` if everything is.
    pub(crate) work: Option<Work>,
    /// Bytes for the requester's CQE: those of a READ or an atomic.
    pub(crate) brought: u32,
    /// The receive to complete at the end.
    pub(crate) delivery: Option<Delivery>,
}

/// Work that goes on after a WQE was started.
#[derive(Debug)]
pub(crate) enum Work {
    Nothing,
    /// A connection or another device executes it and reports when it is complete.
    Away,
    Copy(Box<Transfer>),
    Atomic(Box<RemoteAtomic>),
}

impl Work {
    /// Goes on without waiting. True at the end.
    pub(crate) fn advance(&mut self, slice: u64, keys: &KeyTable) -> Result<bool, Fault> {
        match self {
            Self::Nothing => Ok(true),
            Self::Away => Ok(false),
            Self::Copy(transfer) => transfer.advance(slice, Some(keys)),
            Self::Atomic(atomic) => atomic.advance(),
        }
    }

    /// A connection or another device executes it.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Away)
    }

    /// A later WQE of the same lane may start.
    pub(crate) fn is_issued(&self) -> bool {
        match self {
            Self::Nothing | Self::Away => true,
            Self::Copy(transfer) => transfer.is_issued(),
            Self::Atomic(_) => false,
        }
    }
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
}

/// Why a WQE was not started.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Earlier WQEs of the queue must end first.
    Drain,
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
