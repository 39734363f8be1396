//! Errors of expert parallelism.

use std::fmt;
use thiserror::Error;
use warpverbs_gpu::{GpuError, LaunchError};
use warpverbs_rendezvous::WorldError;
use warpverbs_shmem::{HeapHealth, ShmemError};
use warpverbs_transport::{Outcome, TransportError};

/// A call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum EpError {
    /// A setting is invalid.
    #[error("{field} is {value}, expected {expected}")]
    Config { field: &'static str, value: String, expected: String },
    /// Two ranks want different layers; `rank` is the lower one.
    #[error("{field} differs: rank {rank} has {value}, rank {other} has {other_value}")]
    Unequal { field: &'static str, rank: u32, value: u64, other: u32, other_value: u64 },
    /// A rank of another version.
    #[error("rank {rank} sent {found} bytes as its settings, expected {expected}")]
    Version { rank: u32, found: usize, expected: usize },
    /// Work for a member that stayed does not come to its end.
    #[error("rank {rank} does not reach rank {to} any more: one of them is to be excluded")]
    CutOff { rank: u32, to: u32 },
    /// No such channel.
    #[error("there is no channel {channel}, expected less than {channels}")]
    Channel { channel: usize, channels: usize },
    /// The channel's last dispatch has not got its combine, or a call of another channel was given.
    #[error("channel {channel} is to {expected} next")]
    Turn { channel: usize, expected: &'static str },
    /// A call was recorded before the ranks regrouped.
    #[error(
        "channel {channel} has regrouped since the call was recorded, expected a new recording"
    )]
    Recorded { channel: usize },
    /// More tokens than the configuration has room for.
    #[error("{count} tokens, expected at most {most}")]
    Tokens { count: u32, most: u32 },
    /// A buffer is too small, or not aligned.
    #[error("{what}: expected {expected} bytes or more at a multiple of 16, found {found}")]
    Small { what: &'static str, expected: u64, found: u64 },
    /// An expert that there is not.
    #[error("token {token} names expert {expert}, expected -1 or less than {experts}")]
    Expert { token: usize, expert: i32, experts: u32 },
    /// A token that names an expert twice.
    #[error("token {token} names expert {expert} twice")]
    Twice { token: usize, expert: i32 },
    /// The routing has another length than experts of each token.
    #[error("{found} choices of experts, expected a multiple of {top_k}")]
    Choices { found: usize, top_k: u32 },
    /// The kernel ended with a bad status. `missing` are the ranks whose rows or results are not there;
    /// the health has the first cause: rank, word, what was expected and seen.
    #[error("{outcome}; without ranks {missing:?}; {health}")]
    Kernel { outcome: Outcome, missing: Vec<u32>, health: Box<HeapHealth> },
    /// The heap refused.
    #[error(transparent)]
    Heap(#[from] ShmemError),
    /// A rank is lost, or the store.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The device refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A kernel did not end, or not by itself.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The status of a kernel could not be read.
    #[error(transparent)]
    Status(#[from] TransportError),
}

/// A step failed. If its kernel ended all the same, `next` is what the following step takes: all shapes
/// are as always, and [`EpError::Kernel`] says which ranks have no part in the result.
#[derive(Debug)]
pub struct Failed<T> {
    /// The failure.
    pub cause: Box<EpError>,
    /// The rest of the call.
    pub next: Option<T>,
}

impl<T> fmt::Display for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Failed<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

impl<T> From<EpError> for Failed<T> {
    fn from(cause: EpError) -> Self {
        Self { cause: Box::new(cause), next: None }
    }
}

impl<T> From<Failed<T>> for EpError {
    fn from(failed: Failed<T>) -> Self {
        *failed.cause
    }
}

impl EpError {
    /// With the result of the step that failed.
    pub(crate) fn with<T>(self, next: T) -> Failed<T> {
        Failed { cause: Box::new(self), next: Some(next) }
    }
}
