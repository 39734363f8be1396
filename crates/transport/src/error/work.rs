//! Work requests that failed.

use super::ErrorKind;
use thiserror::Error;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::QueueKind;

/// The first error completion of an endpoint. Everything posted to it afterwards fails with the
/// same value until [`Endpoint::reset`](crate::Endpoint::reset).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "endpoint {qpn:#x}: {queue} work request {index} ({}) failed: {syndrome}, vendor {vendor:#04x}",
    operation(*.queue, *.opcode)
)]
pub struct WorkError {
    /// The endpoint.
    pub qpn: u32,
    /// Which of its queues.
    pub queue: QueueKind,
    /// Low 16 bits of the work request's index: what the CQE carries.
    pub index: u16,
    /// Its opcode; `None` for a receive, and of formats whose CQEs name none.
    pub opcode: Option<SendOpcode>,
    /// The cause.
    pub syndrome: Syndrome,
    /// The vendor's own detail, without a public meaning.
    pub vendor: u8,
}

/// The operation in words.
fn operation(queue: QueueKind, opcode: Option<SendOpcode>) -> &'static str {
    match (queue, opcode) {
        (_, Some(opcode)) => opcode.name(),
        (QueueKind::Send, None) => "opcode not told",
        (QueueKind::Receive | QueueKind::Shared, None) => "RECV",
    }
}

impl WorkError {
    /// Reports that a send was given up after another had failed, not what had failed.
    pub(crate) fn is_flushed_send(&self) -> bool {
        self.queue == QueueKind::Send && self.syndrome == Syndrome::WrFlush
    }

    /// The kind of the error, as far as the syndrome shows it.
    pub fn kind(&self) -> ErrorKind {
        match self.syndrome {
            Syndrome::LocalLength
            | Syndrome::LocalQpOp
            | Syndrome::LocalProt
            | Syndrome::LocalAccess
            | Syndrome::MwBind
            | Syndrome::RemoteInvalReq
            | Syndrome::RemoteAccess => ErrorKind::BadCaller,
            Syndrome::BadResp | Syndrome::RemoteOp | Syndrome::RemoteAborted => ErrorKind::BadPeer,
            _ => ErrorKind::BadLuck,
        }
    }
}
