//! Files as the remote side of a transfer: a descriptor's device is an open file descriptor, its address an
//! offset in the file.
//!
//! Bytes go between the memory itself and the file, by io_uring or threads
//! ([`warpverbs_mem::FileQueue`]). A transfer has descriptors of its own for its files from its making to its
//! end, so that the number of a closed one, which another file may get, is not used.

mod descriptor;
mod error;
mod info;
mod path;
mod transfer;

pub use error::FileError;
pub use info::FileInfo;
pub use path::FilePath;
pub use transfer::{FilePiece, FileTransfer};

use descriptor::Descriptors;
use std::sync::Arc;
use transfer::Plan;
use warpverbs_mem::{FileEngine, FileOp, FileQueue};

/// The mover of bytes of files. Cloning shares it. Its threads start with the first transfer, and end with
/// the last clone and the last transfer.
#[derive(Clone, Debug)]
pub struct Files {
    descriptors: Arc<Descriptors>,
    queue: Arc<FileQueue>,
}

impl Files {
    /// By io_uring where this system allows it, and threads otherwise. Nothing is started yet.
    pub fn start() -> Self {
        Self::with(FileEngine::Auto)
    }

    /// By this engine. Nothing is started yet.
    pub fn with(engine: FileEngine) -> Self {
        Self { descriptors: Arc::default(), queue: Arc::new(FileQueue::new(engine)) }
    }

    /// Names the engine that moves the bytes, and why it is this one.
    pub fn explain(&self) -> String {
        self.queue.explain()
    }

    /// Whether `fd` is the number of a file that bytes can be moved to or from, as a program registers it.
    ///
    /// # Errors
    /// It is not open, or something else than a regular file or a block device.
    pub fn check(&self, fd: i32) -> Result<(), FileError> {
        self.descriptors.take(fd).map(drop)
    }

    /// A transfer of all `pieces`, which has not been posted. Neighbours in the list that are neighbours in
    /// memory and file as well become one. Their order is not that in which bytes are moved, so pieces that
    /// are written must not overlap.
    ///
    /// # Errors
    /// A descriptor is not open, is no regular file or block device, or does not allow `op`; a piece is
    /// outside of its memory, or of what a file may have.
    pub fn transfer(&self, op: FileOp, pieces: Vec<FilePiece>) -> Result<FileTransfer, FileError> {
        let mut plan = Plan::new(op);
        for (index, piece) in pieces.into_iter().enumerate() {
            plan.add(index, piece, &self.descriptors)?;
        }
        Ok(FileTransfer::new(plan, self.queue.clone()))
    }
}

#[cfg(test)]
mod tests;
