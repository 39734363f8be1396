//! Why a transfer with files is refused or fails.

use crate::{Error, Status};
use nix::errno::Errno;
use thiserror::Error as ThisError;
use warpverbs_mem::{FileIoError, FileOp, MemError};

/// Why a transfer with files is refused or fails. `fd` is the number that the program gave.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum FileError {
    /// No open file has the number.
    #[error("file descriptor {fd} is not open")]
    Closed { fd: i32 },
    /// Its bytes have no offsets.
    #[error("file descriptor {fd} is {found}, expected a regular file or a block device")]
    Kind { fd: i32, found: &'static str },
    /// It was opened for something else.
    #[error("no {op}: file descriptor {fd} was opened {how}")]
    Access { fd: i32, op: FileOp, how: &'static str },
    /// The system would write at the end, whatever the offset.
    #[error("no write: file descriptor {fd} was opened with O_APPEND, so offsets would be ignored")]
    Append { fd: i32 },
    /// The system gives no second descriptor.
    #[error("file descriptor {fd} cannot be kept: {errno}")]
    Duplicate { fd: i32, errno: Errno },
    /// A path could not be opened.
    #[error("cannot open {path:?}: {errno}")]
    Open { path: String, errno: Errno },
    /// The memory of a piece does not have its range.
    #[error("descriptor {piece}: {error}")]
    Memory { piece: usize, error: MemError },
    /// Nobody keeps the memory of a piece any more, as when it was deregistered.
    #[error("descriptor {piece}: its memory is not registered any more")]
    Gone { piece: usize },
    /// Offsets of files are signed.
    #[error(
        "descriptor {piece}: {len} bytes at offset {offset}: files end at {} at the latest",
        i64::MAX
    )]
    Offset { piece: usize, offset: u64, len: u64 },
    /// Bytes were not moved.
    #[error("file descriptor {fd}: {error}")]
    Io { fd: i32, error: FileIoError },
    /// Nothing moves bytes of files.
    #[error("{0}")]
    Engine(FileIoError),
    /// Posted, and not over.
    #[error("this transfer with files is in progress")]
    InProgress,
    /// Never posted.
    #[error("this transfer with files was not posted")]
    NotPosted,
    /// Cancelled before all bytes were moved.
    #[error("this transfer with files was cancelled")]
    Cancelled,
}

impl FileError {
    /// The status that NIXL's interfaces report.
    pub fn status(&self) -> Status {
        match self {
            Self::Closed { .. }
            | Self::Kind { .. }
            | Self::Append { .. }
            | Self::Memory { .. }
            | Self::Offset { .. } => Status::InvalidParam,
            Self::Gone { .. } => Status::NotFound,
            Self::Access { .. } => Status::NotAllowed,
            Self::Open { errno: Errno::ENOENT, .. } => Status::NotFound,
            Self::Open { errno: Errno::EACCES | Errno::EPERM | Errno::EROFS, .. } => {
                Status::NotAllowed
            }
            Self::Duplicate { .. } | Self::Open { .. } | Self::Io { .. } => Status::Backend,
            Self::Engine(FileIoError::NoRing { .. }) => Status::NotSupported,
            Self::Engine(_) => Status::Backend,
            Self::InProgress => Status::RepostActive,
            Self::NotPosted => Status::NotPosted,
            Self::Cancelled => Status::Cancelled,
        }
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Self::new(error.status(), error.to_string())
    }
}
