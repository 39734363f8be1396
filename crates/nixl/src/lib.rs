//! The semantics of NIXL over [`warpverbs_agent`]: memory is named by address, length and device at both
//! ends, lists are of such descriptors, notifications wait without a window, and an agent is its own
//! peer. The Python package and the C library are thin fronts of this crate.
#![forbid(unsafe_code)]

mod error;
mod file;
mod kind;
mod list;

pub use error::{Error, Status};
pub use file::{FileError, FileInfo, FilePath, FilePiece, FileTransfer, Files};
pub use kind::Kind;
pub use list::{Desc, List, MOST_DESCRIPTORS, RegDesc, RegList, Strided};
pub use warpverbs_mem::{FileEngine, FileOp};
