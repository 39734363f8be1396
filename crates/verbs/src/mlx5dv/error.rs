//! Errors, with a line of advice where something can be done about it.

use crate::{CallError, LoadError};
use nix::errno::Errno;
use std::fmt;
use thiserror::Error;
use warpverbs_mlx5::prm::Status;

/// A call of libmlx5 that failed, or that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mlx5Error {
    /// libmlx5 cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device is not one of libmlx5's.
    #[error("{device} is not an mlx5 device")]
    NotMlx5 {
        /// The device.
        device: String,
    },
    /// A call failed.
    #[error("{call}{}", advice(call))]
    Call {
        /// The call.
        call: CallError,
    },
    /// A firmware command failed.
    #[error("{command} failed: {answer}{}", advice_on(*errno, answer))]
    Command {
        /// Its name in the manual.
        command: &'static str,
        /// The kernel's error number.
        errno: Errno,
        /// The firmware's answer.
        answer: Answer,
    },
    /// The device cannot be given the memory.
    #[error(
        "queues in {kind} memory cannot be given to the device: {why}; queues in pinned host memory \
         (QueuePlacement::PinnedHost) can"
    )]
    NotReached {
        /// Where it lies.
        kind: String,
        /// The party that refused it.
        why: String,
    },
}

impl From<CallError> for Mlx5Error {
    fn from(call: CallError) -> Self {
        Self::Call { call }
    }
}

/// The firmware's answer to a command that it refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status' byte.
    pub code: u8,
    /// The status, if its value is known.
    pub status: Option<Status>,
    /// A number whose meaning the firmware's vendor knows.
    pub syndrome: u32,
}

impl Answer {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let (status, syndrome) = Status::parse(bytes);
        Self { code: bytes.first().copied().unwrap_or(0), status, syndrome }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, status, syndrome } = self;
        match status {
            Some(Status::Ok) => f.write_str("the kernel refused it before the firmware saw it"),
            Some(status) => write!(f, "status {code:#x} ({status:?}), syndrome {syndrome:#010x}"),
            None => write!(f, "status {code:#x}, syndrome {syndrome:#010x}"),
        }
    }
}

fn advice(call: &CallError) -> &'static str {
    if call.call == "ibv_create_ah" {
        return "; the kernel found no way to the peer: `ping` it, and compare the GIDs (`warpverbs doctor`)";
    }
    match call.errno {
        Errno::ENOMEM => {
            "; locked memory may be limited: `ulimit -l unlimited`, for a container --ulimit memlock=-1"
        }
        errno => on_errno(errno),
    }
}

/// The kernel answers EREMOTEIO where the firmware has said why.
fn advice_on(errno: Errno, answer: &Answer) -> &'static str {
    match answer.status {
        None | Some(Status::Ok) => on_errno(errno),
        Some(Status::BadOpcode | Status::BadParameter | Status::BadInputLength) => {
            "; the firmware may be too old for it: compare its version (ibv_devinfo) with the newest"
        }
        Some(Status::Limit | Status::NoResources) => {
            "; the device has no more of these objects: see `rdma resource show`"
        }
        Some(Status::Internal | Status::BadSystemState) => {
            "; the firmware is in trouble: see `dmesg | grep mlx5`, and reset the device (mlxfwreset)"
        }
        Some(Status::Busy) => "; another object, perhaps of another process, still uses it",
        Some(
            Status::BadResource
            | Status::BadResourceState
            | Status::BadIndex
            | Status::BadQpState
            | Status::BadOutputLength,
        ) => "; that is a fault of this library or of the firmware: report it, with `ibv_devinfo`",
    }
}

fn on_errno(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM | Errno::EACCES => {
            "; DevX needs the right to use the device's node, and for some commands CAP_NET_RAW"
        }
        // The kernel's answer in a context without a number for DevX users.
        Errno::EINVAL => {
            "; if all commands fail so, the firmware allows no DevX: set its option UCTX_EN \
             (`mlxconfig -d DEVICE set UCTX_EN=1`), then reset the device"
        }
        Errno::EAGAIN | Errno::ENOSPC => {
            "; the device or the control group has no more of these objects: see `rdma resource show`"
        }
        Errno::EIO => "; the device does not answer: see `dmesg | grep mlx5`",
        Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::EPROTONOSUPPORT => {
            "; DevX needs Linux 4.19 and libmlx5 of rdma-core 22"
        }
        _ => "",
    }
}
