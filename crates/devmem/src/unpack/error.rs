//! Errors of unpacking.

use super::AreaId;
use std::time::Duration;
use thiserror::Error;
use warpverbs_gpu::{CopyError, GpuError, LaunchError};
use warpverbs_mem::MemError;

/// Moves could not be started, or not be completed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// A move names an area that the unpacker does not have.
    #[error("move {index} names area {}, which is not registered", area.0)]
    NoArea {
        /// Index of the move.
        index: usize,
        /// The area.
        area: AreaId,
    },
    /// A move reaches beyond an area.
    #[error("move {index}: {len} bytes at offset {offset:#x} are not inside area {} of {size:#x} bytes", area.0)]
    Outside {
        /// Index of the move.
        index: usize,
        /// The area.
        area: AreaId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the area.
        size: usize,
    },
    /// The ring is full of descriptors that kernels still read: poll, then submit again.
    #[error("the descriptor ring is full")]
    Full,
    /// A batch that the ring can never hold.
    #[error("the batch has {descriptors} descriptors, the ring holds {entries}")]
    TooLarge {
        /// Descriptors of the batch.
        descriptors: u64,
        /// Length of the ring.
        entries: u64,
    },
    /// An address that a descriptor cannot hold.
    #[error("address {addr:#x} has more than {bits} bits")]
    Address {
        /// The address.
        addr: u64,
        /// Bits that there are.
        bits: u32,
    },
    /// Moves did not complete in time.
    #[error("moves have not completed after {after:?}")]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// An earlier batch failed; nothing after it is started.
    #[error("an earlier batch of moves failed")]
    Failed,
    /// The device refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The kernel failed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A copy failed.
    #[error(transparent)]
    Memory(#[from] MemError),
}

impl From<CopyError> for UnpackError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Full => Self::Full,
            CopyError::TooLarge { pieces: descriptors, entries } => {
                Self::TooLarge { descriptors, entries }
            }
            CopyError::Address { addr, bits } => Self::Address { addr, bits },
            CopyError::Memory(error) => Self::Memory(error),
            CopyError::Gpu(error) => Self::Gpu(error),
        }
    }
}
