//! Sizes, kinds and times of files, without opening them.

use super::Files;
use super::descriptor::duplicated;
use super::error::FileError;
use nix::sys::stat::{FileStat, fstat, stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Size, kind, rights and time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its bytes.
    pub size: u64,
    /// Its kind and the rights to it.
    pub mode: u32,
    /// When it was changed last, in seconds since 1970.
    pub mtime: i64,
}

impl FileInfo {
    /// As programs of NIXL's get it: names, and decimal numbers as text.
    pub fn entries(&self) -> [(&'static str, String); 3] {
        let Self { size, mode, mtime } = self;
        [("size", size.to_string()), ("mode", mode.to_string()), ("mtime", mtime.to_string())]
    }
}

impl From<FileStat> for FileInfo {
    fn from(found: FileStat) -> Self {
        Self { size: found.st_size as u64, mode: found.st_mode, mtime: found.st_mtime }
    }
}

impl Files {
    /// Size, kind, rights and time of the file of this path. None: there is no such file, or it may not be looked at.
    pub fn query(path: &[u8]) -> Option<FileInfo> {
        stat(Path::new(OsStr::from_bytes(path))).ok().map(FileInfo::from)
    }

    /// The same of the file that has the number `fd`, of any kind.
    ///
    /// # Errors
    /// It is not open, or the system gives no second descriptor.
    pub fn query_descriptor(fd: i32) -> Result<FileInfo, FileError> {
        let file = duplicated(fd)?;
        let found = fstat(&file).map_err(|errno| FileError::Duplicate { fd, errno })?;
        Ok(found.into())
    }
}
