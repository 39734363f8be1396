//! Errors in bytes of other formats than mlx5's.

use thiserror::Error;
use warpverbs_bnxt::doorbell::{DoorbellViolation as BnxtDoorbell, Kind};
use warpverbs_bnxt::packets::PacketsViolation;
use warpverbs_bnxt::wqe::WqeViolation as BnxtWqe;
use warpverbs_ionic::doorbell::DoorbellViolation as IonicDoorbell;
use warpverbs_ionic::wqe::WqeViolation as IonicWqe;
use warpverbs_rdma::{QueueKind, Status};

/// A rule of bnxt_re's or ionic's queues that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatViolation {
    /// The bytes are not a WQE of bnxt_re.
    #[error("{violation}")]
    BnxtWqe {
        /// The queue.
        queue: QueueKind,
        /// The rule.
        violation: BnxtWqe,
    },
    /// The packet numbers beside a send WQE are not the connection's.
    #[error(transparent)]
    BnxtPackets(#[from] PacketsViolation),
    /// A doorbell of bnxt_re that announces nothing.
    #[error(transparent)]
    BnxtDoorbell(#[from] BnxtDoorbell),
    /// A doorbell of bnxt_re of another kind than its place is for.
    #[error("doorbell.kind is {found:?}, expected {expected:?}")]
    BnxtKind {
        /// In the doorbell.
        found: Kind,
        /// Of its place.
        expected: Kind,
    },
    /// The doorbell of a receive queue or an SRQ names another one.
    #[error("doorbell.queue is {found:#x}, expected {expected:#x}, the queue whose place it is in")]
    DoorbellQueue {
        /// In the doorbell.
        found: u32,
        /// The number of the QP or SRQ.
        expected: u32,
    },
    /// A datagram to an address handle that there is not.
    #[error("datagram.handle is {handle:#x}, expected one of the QP's protection domain")]
    AddressHandle {
        /// In the WQE.
        handle: u32,
    },
    /// The bytes are not a WQE of ionic.
    #[error("{violation}")]
    IonicWqe {
        /// The queue.
        queue: QueueKind,
        /// The rule.
        violation: IonicWqe,
    },
    /// A doorbell of ionic that announces nothing.
    #[error(transparent)]
    IonicDoorbell(#[from] IonicDoorbell),
    /// A doorbell of ionic arms a queue that is not a CQ.
    #[error("doorbell.arm is 1, expected 0: no CQ")]
    IonicArm,
}

impl FormatViolation {
    /// The field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::BnxtWqe { violation, .. } => violation.field(),
            Self::BnxtPackets(violation) => violation.field(),
            Self::BnxtDoorbell(violation) => violation.field(),
            Self::BnxtKind { .. } => "doorbell.kind",
            Self::DoorbellQueue { .. } => "doorbell.queue",
            Self::AddressHandle { .. } => "datagram.handle",
            Self::IonicWqe { violation, .. } => violation.field(),
            Self::IonicDoorbell(violation) => violation.field(),
            Self::IonicArm => "doorbell.arm",
        }
    }

    /// The status that the requester gets, if this ends the QP.
    pub(crate) fn status(&self) -> Option<Status> {
        let (queue, status) = match self {
            Self::BnxtWqe { queue, violation } => (*queue, violation.status()),
            Self::IonicWqe { queue, violation } => (*queue, violation.status()),
            Self::DoorbellQueue { .. } => return Some(Status::RemoteOperation),
            Self::BnxtPackets(_) | Self::AddressHandle { .. } => {
                return Some(Status::LocalQpOperation);
            }
            Self::BnxtDoorbell(_)
            | Self::BnxtKind { .. }
            | Self::IonicDoorbell(_)
            | Self::IonicArm => return None,
        };
        match queue {
            QueueKind::Send => Some(status),
            QueueKind::Receive | QueueKind::Shared => Some(Status::RemoteOperation),
        }
    }
}
