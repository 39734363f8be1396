//! Files that a program names by path when it registers them: `ro:/path`, `rw,direct,create:/path`.

use super::error::FileError;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A path and how its file is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath {
    path: PathBuf,
    flags: OFlag,
}

impl FilePath {
    /// Takes the bytes of a registration apart: `ro` or `rw`, then any of `direct`, `sync`, `noatime` and
    /// `create`, separated by commas, a colon, a path. None: they are something else, and the device number
    /// is a descriptor.
    pub fn parse(meta: &[u8]) -> Option<Self> {
        let colon = meta.iter().position(|&byte| byte == b':')?;
        let (modes, path) = (&meta[..colon], &meta[colon + 1..]);
        let mut modes = modes.split(|&byte| byte == b',');
        let mut flags = match modes.next()? {
            b"ro" => OFlag::O_RDONLY,
            b"rw" => OFlag::O_RDWR,
            _ => return None,
        };
        for mode in modes {
            flags |= match mode {
                b"direct" => OFlag::O_DIRECT,
                b"sync" => OFlag::O_SYNC,
                b"noatime" => OFlag::O_NOATIME,
                b"create" => OFlag::O_CREAT,
                _ => return None,
            };
        }
        let path = PathBuf::from(OsStr::from_bytes(path));
        (!path.as_os_str().is_empty()).then_some(Self { path, flags })
    }

    /// Opens it. All may read a file that it creates, and its owner may write it.
    ///
    /// # Errors
    /// The system's.
    pub fn open(&self) -> Result<OwnedFd, FileError> {
        let mode = Mode::from_bits_truncate(0o644);
        loop {
            match open(&self.path, self.flags | OFlag::O_CLOEXEC, mode) {
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    let path = self.path.display().to_string();
                    return Err(FileError::Open { path, errno });
                }
                Ok(file) => return Ok(file),
            }
        }
    }
}
