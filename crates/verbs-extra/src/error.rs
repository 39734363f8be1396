//! Errors.

use crate::{BatchError, CompletionFields, SendOps};
use thiserror::Error;
use warpverbs_verbs::{CallError, Context, VerbsError};

/// A request that was refused, or that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtraError {
    /// As for the objects of `warpverbs-verbs`.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The device, its driver or the kernel does not have what was asked for.
    #[error("{device} does not offer {what}")]
    NotOffered {
        /// The device.
        device: String,
        /// The part that it lacks.
        what: Offer,
    },
    /// A work request does not fit its batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// A part of the interface that not every device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Offer {
    /// CQs that are polled field by field (`ibv_create_cq_ex`).
    #[error("extended CQs")]
    ExtendedCqs,
    /// These fields of completions.
    #[error("completions with {0}")]
    CompletionFields(CompletionFields),
    /// QPs that are posted to in batches (`ibv_create_qp_ex`, `ibv_qp_to_qp_ex`).
    #[error("extended QPs")]
    ExtendedQps,
    /// These operations on such QPs.
    #[error("batches with {0}")]
    SendOps(SendOps),
    /// Memory that is not pinned (`IBV_ODP_SUPPORT`).
    #[error("on-demand paging (IBV_ODP_SUPPORT)")]
    OnDemandPaging,
}

impl Offer {
    /// The refusal of a device that lacks this.
    pub(crate) fn lacks(self, context: &Context) -> ExtraError {
        let device = context.device().name().to_owned();
        ExtraError::NotOffered { device, what: self }
    }
}

/// With what can be done about it, if anything is known.
impl From<CallError> for ExtraError {
    fn from(call: CallError) -> Self {
        VerbsError::from(call).into()
    }
}
