//! Why bytes do not get from a file, or to it.

use super::request::FileOp;
use crate::MemError;
use nix::errno::Errno;
use thiserror::Error;

/// Why bytes were not moved. Where a range is named, it is the one that was asked for; of alignments, the
/// part of it that the system refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum FileIoError {
    /// The range does not lie inside the region, or its copy engine refused or failed.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The file ends before the range does. Bytes up to its end may have been read.
    #[error("a read of {len} bytes at offset {offset} of a file that has {size} bytes")]
    Short { offset: u64, len: u64, size: u64 },
    /// Offsets of files are signed.
    #[error("{op} of {len} bytes at offset {offset}: files end at {} at the latest", i64::MAX)]
    Offset { op: FileOp, offset: u64, len: u64 },
    /// The system would end the process by SIGXFSZ.
    #[error(
        "write of {len} bytes at offset {offset}: files of this process may have {limit} bytes (ulimit -f)"
    )]
    Limit { offset: u64, len: u64, limit: u64 },
    /// The file was opened with `O_DIRECT`, and address, length or offset do not suit its device.
    #[error(
        "{op} of {len} bytes at offset {offset} with memory at {addr:#x}: the file was opened with O_DIRECT, \
         so the address must be a multiple of {memory}, offset and length of {file}"
    )]
    Alignment { op: FileOp, offset: u64, len: u64, addr: u64, memory: Alignment, file: Alignment },
    /// The system refused or failed.
    #[error("{op} of {len} bytes at offset {offset}: {errno}")]
    System { op: FileOp, offset: u64, len: u64, errno: Errno },
    /// The system took no byte and gave no reason.
    #[error("write of {len} bytes at offset {offset}: the system wrote nothing")]
    Nothing { offset: u64, len: u64 },
    /// The batch was cancelled, or its queue ended, before all bytes were moved.
    #[error("cancelled before all bytes were moved")]
    Stopped,
    /// io_uring was asked for by name, and the system does not let this process have it.
    #[error("io_uring cannot be had: {why}")]
    NoRing { why: String },
    /// The ring does not take operations any more.
    #[error("io_uring failed: {errno}")]
    Ring { errno: Errno },
    /// The system gives no thread or descriptor.
    #[error("cannot start {what} for files: {errno}")]
    Start { what: &'static str, errno: Errno },
}

impl FileIoError {
    /// The same error of a part of a range, as one of all the range.
    pub(super) fn of_all(mut self, all_offset: u64, all_len: u64) -> Self {
        if let Self::Short { offset, len, .. }
        | Self::Offset { offset, len, .. }
        | Self::Limit { offset, len, .. }
        | Self::System { offset, len, .. }
        | Self::Nothing { offset, len } = &mut self
        {
            (*offset, *len) = (all_offset, all_len);
        }
        self
    }
}

/// The number that an address or an offset must be a multiple of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment(pub Option<u32>);

impl std::fmt::Display for Alignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{bytes}"),
            None => f.write_str("the device's blocks (512 or 4096 as a rule)"),
        }
    }
}

/// The first thing that went wrong in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct FileFailure {
    /// Which request, by its place in the list; none, if it was no request's fault.
    pub request: Option<usize>,
    /// The cause.
    #[source]
    pub error: FileIoError,
}
