//! The error word, in which posters keep the first error completion of an endpoint.

use crate::{Error, WaitError, WorkError};
use warpverbs_mlx5::cqe::ErrorSide;
use warpverbs_mlx5::export::ErrorWord;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::QueueKind;

/// `cqe_opcode` of an error word that a poster wrote when it gave up waiting for room.
pub(crate) const GAVE_UP: u8 = 0x7f;
/// The same for a completion that names no work in flight.
pub(crate) const STRAY_COMPLETION: u8 = 0x7e;

/// Opcode of the CQE of an error.
pub(crate) const fn error_opcode(side: ErrorSide) -> u8 {
    match side {
        ErrorSide::Requester => 13,
        ErrorSide::Responder => 14,
    }
}

/// What an error word says.
pub(crate) fn decode_error(qpn: u32, word: ErrorWord) -> Error {
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
