//! Ranges that are to be moved.

use super::error::FileIoError;
use crate::{MemError, Region};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileOp {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

impl fmt::Display for FileOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// A range of memory and the range of a file that it is read from or written to. Both are kept as long as
/// this value lives.
#[derive(Clone, Debug)]
pub struct FileRequest {
    /// Which way the bytes go.
    pub op: FileOp,
    /// The memory.
    pub memory: Region,
    /// Where in the memory, bytes.
    pub at: u64,
    /// The file.
    pub file: Arc<OwnedFd>,
    /// Where in the file, bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// The address of the first byte, if all can be moved as far as the numbers tell.
///
/// # Errors
/// The range of memory is outside of its region, or the range of the file beyond any file.
pub(super) fn check(
    op: FileOp,
    memory: &Region,
    at: u64,
    offset: u64,
    len: u64,
) -> Result<u64, FileIoError> {
    let out = MemError::OutOfBounds { offset: at, len, region_len: memory.len() as u64 };
    let addr = memory.range(at, usize::try_from(len).map_err(|_| out)?)?;
    match offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok()) {
        true => Ok(addr),
        false => Err(FileIoError::Offset { op, offset, len }),
    }
}
