//! One error for a program that uses several parts.

use thiserror::Error;
use warpverbs_gpu::{GpuError, LaunchError};
use warpverbs_rendezvous::{EnvError, WorldError};

/// Error of a program: an endpoint's, a device's, a kernel's or a world's.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Of a context, NIC, endpoint or memory region, or a kernel's bad status.
    #[error(transparent)]
    Transport(#[from] warpverbs_transport::TransportError),
    /// Of the device that runs kernels.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A kernel did not end, or not by itself.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Other processes are missing, failed or lost.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A symmetric heap could not be made or used.
    #[cfg(feature = "shmem")]
    #[error(transparent)]
    Shmem(#[from] warpverbs_shmem::ShmemError),
    /// A dispatch or a combine failed.
    #[cfg(feature = "ep")]
    #[error(transparent)]
    Ep(#[from] warpverbs_ep::EpError),
    /// Nothing says which rank this process is, or it cannot be.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A range does not lie inside its memory.
    #[error(transparent)]
    Memory(#[from] warpverbs_mem::MemError),
    /// Bytes of a peer could not be decoded as a handle or a region.
    #[error(transparent)]
    Handle(#[from] warpverbs_transport::HandleError),
    /// The call asks for something that cannot be.
    #[error(transparent)]
    Usage(#[from] warpverbs_transport::UsageError),
}

/// A result of this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
