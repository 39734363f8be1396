//! Memory as another process of the same machine maps it.

use std::os::fd::OwnedFd;

/// Handle by which a process maps one piece of another's memory.
#[derive(Debug)]
pub enum ShareHandle {
    /// A file descriptor: a sealed memfd, or memory of a GPU.
    Descriptor(OwnedFd),
    /// A CUDA IPC handle. It works in other processes only, and the memory must not be freed while
    /// one of them has it open.
    CudaIpc([u8; 64]),
    /// A HIP IPC handle, for which the same holds.
    HipIpc([u8; 64]),
}

/// A whole allocation.
#[derive(Debug)]
pub struct SharePiece {
    /// Handle that maps it.
    pub handle: ShareHandle,
    /// Its length in bytes.
    pub len: u64,
}

/// The allocations in which a range lies, one after the other.
#[derive(Debug)]
pub struct Share {
    /// The allocations.
    pub pieces: Vec<SharePiece>,
    /// Where the range begins in the first one, bytes.
    pub offset: u64,
}
