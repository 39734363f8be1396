//! Bytes moved between memory and files, by system calls on the memory itself: no copy between.
//!
//! A [`FileQueue`] moves lists of ranges without making its caller wait. It uses io_uring for files
//! opened with `O_DIRECT`, where the kernel allows it, and threads of its own otherwise ([`FileEngine::Auto`]
//! says why); memory that the CPU does not reach goes by those threads and host memory that its copy engine knows. [`read_file`] and [`write_file`] are for one range, and wait.
//!
//! **Soundness.** The kernel is given addresses, never references: others may change the bytes
//! meanwhile. Each operation holds its region and its file until the kernel has ended it, whatever becomes
//! of the handle, and no thread or ring goes away before the operations that it was given.

mod batch;
mod calls;
mod error;
mod line;
mod queue;
mod request;
mod ring;
mod wake;
mod workers;

pub use batch::FileBatch;
pub use calls::{duplicate_descriptor, read_file, write_file};
pub use error::{Alignment, FileFailure, FileIoError};
pub use queue::{FileEngine, FileQueue, MOST_IN_FLIGHT};
pub use request::{FileOp, FileRequest};

#[cfg(test)]
mod tests;
