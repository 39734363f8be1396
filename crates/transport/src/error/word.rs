//! The error word, in which posters keep the first error of an endpoint.

use crate::{TransportError, WaitError, WorkError};
use warpverbs_mlx5::export::{Cause, ErrorWord};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::QueueKind;

/// The error of an error word.
pub(crate) fn decode_error(qpn: u32, word: ErrorWord) -> TransportError {
    let (queue, opcode) = match word.cause() {
        Some(Cause::PosterGaveUp) => return WaitError::PosterGaveUp { qpn }.into(),
        Some(Cause::StrayCqe) => {
            return WaitError::StrayCompletion { qpn, counter: word.wqe_counter() }.into();
        }
        Some(Cause::Responder) => (QueueKind::Receive, None),
        _ => (QueueKind::Send, Some(SendOpcode::from_value(word.wqe_opcode()))),
    };
    let (index, vendor) = (word.wqe_counter(), word.vendor());
    let syndrome = Syndrome::from_value(word.syndrome());
    WorkError { qpn, queue, index, opcode, syndrome, vendor }.into()
}
