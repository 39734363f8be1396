//! Open files that programs name by numbers.

use super::error::FileError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use warpverbs_mem::{FileOp, duplicate_descriptor};

/// Descriptors of our own for files of programs. All transfers with the same file, opened in the same way,
/// have the same one, so that many transfers do not use up the numbers of a process.
#[derive(Debug, Default)]
pub(super) struct Descriptors(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<Key, Weak<OwnedFd>>,
    /// With so many, those that nobody has any more are forgotten.
    most: usize,
}

/// A file, opened in some way, under a number. While it is kept open, no other file has its place on the
/// device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    fd: i32,
    device: u64,
    inode: u64,
    flags: i32,
}

/// A file of a program, kept open.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    /// The program's number.
    pub(super) fd: i32,
    pub(super) file: Arc<OwnedFd>,
    flags: OFlag,
}

impl Descriptors {
    /// The file that has the number `fd` now, if bytes of it have offsets.
    pub(super) fn take(&self, fd: i32) -> Result<Descriptor, FileError> {
        let file = duplicated(fd)?;
        let system = |errno| FileError::Duplicate { fd, errno };
        // All of them are asked of the file that is kept: the number may be another's by now.
        let status = fstat(&file).map_err(system)?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFREG && kind != SFlag::S_IFBLK {
            return Err(FileError::Kind { fd, found: name_of(kind) });
        }
        let flags = fcntl(&file, FcntlArg::F_GETFL).map_err(system)?;
        let key = Key { fd, device: status.st_dev, inode: status.st_ino, flags };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = kept.same(key, file);
        Ok(Descriptor { fd, file, flags: OFlag::from_bits_retain(flags) })
    }
}

/// The file that has the number `fd` now, of any kind.
pub(super) fn duplicated(fd: i32) -> Result<OwnedFd, FileError> {
    duplicate_descriptor(fd).map_err(|errno| match errno {
        Errno::EBADF => FileError::Closed { fd },
        errno => FileError::Duplicate { fd, errno },
    })
}

impl Kept {
    /// The descriptor that others have for this file, or `file`.
    fn same(&mut self, key: Key, file: OwnedFd) -> Arc<OwnedFd> {
        if let Some(before) = self.files.get(&key).and_then(Weak::upgrade) {
            return before;
        }
        if self.files.len() >= self.most {
            self.files.retain(|_, file| file.strong_count() > 0);
            self.most = 2 * self.files.len() + 64;
        }
        let file = Arc::new(file);
        self.files.insert(key, Arc::downgrade(&file));
        file
    }
}

impl Descriptor {
    /// Whether it was opened for `op`.
    pub(super) fn allows(&self, op: FileOp) -> Result<(), FileError> {
        let (fd, flags) = (self.fd, self.flags);
        if flags.contains(OFlag::O_PATH) {
            return Err(FileError::Access { fd, op, how: "as a path alone" });
        }
        match (op, flags & OFlag::O_ACCMODE) {
            (FileOp::Read, OFlag::O_WRONLY) => {
                Err(FileError::Access { fd, op, how: "for writing alone" })
            }
            (FileOp::Write, OFlag::O_RDONLY) => {
                Err(FileError::Access { fd, op, how: "for reading alone" })
            }
            (FileOp::Write, _) if flags.contains(OFlag::O_APPEND) => Err(FileError::Append { fd }),
            _ => Ok(()),
        }
    }
}

fn name_of(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFIFO => "a pipe",
        SFlag::S_IFSOCK => "a socket",
        SFlag::S_IFCHR => "a character device",
        SFlag::S_IFLNK => "a symbolic link",
        // Of no file at all, as an eventfd.
        _ => "no file",
    }
}
