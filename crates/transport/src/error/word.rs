//! The error word, in which posters keep the first error of an endpoint.

use crate::{TransportError, WaitError, WorkError};
use warpverbs_mlx5::export::{ErrorWord, NicFormat, Outcome};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::QueueKind;

/// The error of an error word.
pub(crate) fn decode_error(qpn: u32, format: NicFormat, word: ErrorWord) -> TransportError {
    let fields = word.fields();
    let (queue, opcode) = match word.outcome() {
        // A poster gave up after it had reserved: a hole in the queue that nobody will fill.
        Some(Outcome::Aborted) => return WaitError::PosterGaveUp { qpn }.into(),
        Some(Outcome::StrayCqe) => {
            return WaitError::StrayCompletion { qpn, counter: word.wqe_counter() }.into();
        }
        Some(Outcome::Responder) => (QueueKind::Receive, None),
        // CQEs of other formats name none.
        _ if format != NicFormat::Mlx5 => (QueueKind::Send, None),
        _ => (QueueKind::Send, Some(SendOpcode::from_value(fields.wqe_opcode()))),
    };
    let (index, vendor) = (word.wqe_counter(), fields.vendor());
    let syndrome = Syndrome::from_value(fields.syndrome());
    WorkError { qpn, queue, index, opcode, syndrome, vendor }.into()
}
