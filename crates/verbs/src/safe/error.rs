//! Errors.

use super::{GidKind, ListError, LoadError, ModifyError, PostError, SelectionError, advice};
use crate::CallError;
use nix::errno::Errno;
use thiserror::Error;
use warpverbs_mem::Access;
use warpverbs_rdma::Reason;

/// A request that libibverbs, the kernel or the device refused, or that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// libibverbs cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call failed, and there is nothing to add.
    #[error(transparent)]
    Call(CallError),
    /// A call failed, and something can be done about it.
    #[error("{call}; {advice}")]
    Advised {
        /// The call.
        call: CallError,
        /// Advice.
        advice: String,
    },
    /// No device has this name, or it is not among the selected ones.
    #[error("no RDMA device {asked:?}; {found}")]
    NoDevice {
        /// The name asked for.
        asked: String,
        /// The devices there are, or the reason why there are none.
        found: String,
    },
    /// `WARPVERBS_NICS` cannot be followed.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// A number is outside of what the device has.
    #[error("{what} is {value}, supported are {min} to {max}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// The value given.
        value: u64,
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// Remote writes and atomics need local write access (IBTA C10-54).
    #[error("access {asked:?} needs LOCAL_WRITE as well")]
    NeedsLocalWrite {
        /// The rights asked for.
        asked: Access,
    },
    /// Objects of two contexts cannot be used together.
    #[error("the {object} is of another context than the protection domain")]
    OtherContext {
        /// Which one.
        object: &'static str,
    },
    /// No GID of the port can be used.
    #[error("port {port} of {device} has no GID of kind {wanted:?}; {found}")]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The kinds that were looked for.
        wanted: Vec<GidKind>,
        /// The entries there are, and advice.
        found: String,
    },
    /// The device, or this kernel or library, cannot do it.
    #[error("{device} cannot do this: {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// The operation that it lacks.
        what: &'static str,
    },
    /// The place of a region in a page differs from that in its dmabuf.
    #[error(
        "offset {offset:#x} of the dmabuf and address {addr:#x} differ in their place in a page"
    )]
    DmabufOffset {
        /// Offset in the dmabuf.
        offset: u64,
        /// The region's address.
        addr: u64,
    },
    /// There is no way to register a GPU's memory.
    #[error(transparent)]
    NotRegistered(Box<NotRegistered>),
    /// Memory behind a bounce buffer cannot be accessed by peers: their accesses cannot be seen.
    #[error(
        "memory that bounces through the host cannot grant {rights:?}, since nobody sees when peers \
         use it: let peers reach host memory (Place::Shared), or see to a direct way ({tried})"
    )]
    BouncedRights {
        /// The rights that peers may not be granted.
        rights: Access,
        /// The direct ways, and why they were not taken.
        tried: String,
    },
    /// Something of libmlx5's own interface failed.
    #[error(transparent)]
    Mlx5(#[from] Box<crate::mlx5dv::Mlx5Error>),
    /// Something of a vendor's own interface failed: Broadcom's libbnxt_re, or AMD's libionic.
    #[error(transparent)]
    Vendor(#[from] Box<crate::vendor::VendorError>),
    /// A QP did not change its state or attributes.
    #[error(transparent)]
    Modify(#[from] Box<ModifyError>),
    /// A work request does not fit its list.
    #[error(transparent)]
    List(#[from] ListError),
    /// Work requests were not taken.
    #[error(transparent)]
    Post(#[from] PostError),
}

/// A GPU's memory could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{region} cannot be registered with {device}: {}", Reason::list(.tried))]
pub struct NotRegistered {
    /// The memory.
    pub region: String,
    /// The RDMA device.
    pub device: String,
    /// The ways that were tried.
    pub tried: Vec<Reason>,
}

impl From<NotRegistered> for VerbsError {
    fn from(error: NotRegistered) -> Self {
        Self::NotRegistered(Box::new(error))
    }
}

/// With what can be done about it, if anything is known.
impl From<CallError> for VerbsError {
    fn from(call: CallError) -> Self {
        match advice::on_call(&call, &advice::Facts::of_this_process()) {
            Some(advice) => Self::Advised { call, advice },
            None => Self::Call(call),
        }
    }
}

impl VerbsError {
    /// The device or the kernel refused the request as invalid (`EINVAL`), without a reason.
    pub fn is_invalid(&self) -> bool {
        let (Self::Call(call) | Self::Advised { call, .. }) = self else { return false };
        call.errno == Errno::EINVAL
    }

    /// A device that is listed, with this node, did not open.
    pub(super) fn not_opened(call: CallError, node: &str) -> Self {
        match advice::on_open(&call, node, &advice::Facts::of_this_process()) {
            Some(advice) => Self::Advised { call, advice },
            None => Self::Call(call),
        }
    }
}

/// `value` of `what` must be between `min` and `max`.
pub(super) fn in_range(
    what: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), VerbsError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(VerbsError::OutOfRange { what, value, min, max })
}
