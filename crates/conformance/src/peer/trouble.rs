//! Why a peer did not execute a request.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpverbs::gpu::{GpuError, LaunchError};
use warpverbs::raw::mlx5::opcode::SendOpcode;
use warpverbs::raw::verbs::VerbsError;
use warpverbs::transport::{QueueKind, Syndrome, TransportError, UsageError, WaitError, WorkError};

/// An error that may come from another process. Errors that cases look at are kept as values, the
/// rest in words.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Trouble {
    /// Work failed.
    #[error("{}", WorkError::from(*.0))]
    Work(Failure),
    /// A shared receive queue takes no more.
    #[error("{0}")]
    SharedQueueFull(String),
    /// There is nothing there to do it with.
    #[error("{0}")]
    NotSupported(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
    /// The other process cannot be reached any more.
    #[error("{0}")]
    Lost(String),
}

/// A [`WorkError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    qpn: u32,
    receive: bool,
    index: u16,
    opcode: Option<u8>,
    syndrome: u8,
    vendor: u8,
}

impl From<WorkError> for Failure {
    fn from(work: WorkError) -> Self {
        Self {
            qpn: work.qpn,
            receive: work.queue == QueueKind::Receive,
            index: work.index,
            opcode: work.opcode.map(SendOpcode::value),
            syndrome: work.syndrome.value(),
            vendor: work.vendor,
        }
    }
}

impl From<Failure> for WorkError {
    fn from(failure: Failure) -> Self {
        Self {
            qpn: failure.qpn,
            queue: if failure.receive { QueueKind::Receive } else { QueueKind::Send },
            index: failure.index,
            opcode: failure.opcode.map(SendOpcode::from_value),
            syndrome: Syndrome::from_value(failure.syndrome),
            vendor: failure.vendor,
        }
    }
}

impl Trouble {
    /// Nothing runs kernels.
    pub(crate) fn no_kernels() -> Self {
        Self::NotSupported("no device that runs kernels".into())
    }
}

impl From<TransportError> for Trouble {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Work(work) => Self::Work(work.into()),
            TransportError::Wait(WaitError::SharedQueueFull { .. }) => {
                Self::SharedQueueFull(error.to_string())
            }
            TransportError::Usage(error) => error.into(),
            TransportError::Verbs(VerbsError::Unsupported { .. }) => {
                Self::NotSupported(error.to_string())
            }
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<UsageError> for Trouble {
    fn from(error: UsageError) -> Self {
        match error {
            UsageError::NotOfFormat { .. } => Self::NotSupported(error.to_string()),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<GpuError> for Trouble {
    fn from(error: GpuError) -> Self {
        Self::Other(format!("GPU: {error}"))
    }
}

impl From<LaunchError> for Trouble {
    fn from(error: LaunchError) -> Self {
        Self::Other(format!("kernel: {error}"))
    }
}
