//! System calls on ranges of regions.

use super::error::{Alignment, FileIoError};
use super::request::{FileOp, check};
use crate::{Kind, MemError, Region};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::stat::{SFlag, fstat};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};

/// Bytes that one call moves at most: enough to hide what a call costs, and few enough that what was
/// cancelled ends soon. A multiple of the blocks of all devices, so that parts of what is aligned are aligned.
pub(super) const PART: u64 = 1 << 20;

/// A range of host memory and of a file, of which a beginning has been moved. The region of the memory and
/// the file must outlive it: [`step`] and the ring hand them to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) op: FileOp,
    /// First byte of the memory.
    pub(super) addr: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) moved: u64,
}

impl Span {
    /// Takes what the system said of the rest. Whether nothing is left.
    pub(super) fn advance(
        &mut self,
        file: BorrowedFd<'_>,
        result: Result<u64, Errno>,
    ) -> Result<bool, FileIoError> {
        let Self { op, offset, len, .. } = *self;
        match result {
            Err(Errno::EINTR) => return Ok(false),
            Err(errno) => return Err(self.explained(file, errno)),
            Ok(count) => self.moved += count.min(len - self.moved),
        }
        if self.moved == len {
            return Ok(true);
        }
        match (op, result) {
            (FileOp::Write, Ok(0)) => Err(FileIoError::Nothing { offset, len }),
            (FileOp::Write, _) => Ok(false),
            // The rest may be no whole block, which O_DIRECT refuses: so the end is looked for first.
            (FileOp::Read, result) => match size_of_file(file) {
                Ok(size) if result != Ok(0) && offset + self.moved < size => Ok(false),
                Ok(size) => Err(FileIoError::Short { offset, len, size }),
                Err(errno) => Err(FileIoError::System { op, offset, len, errno }),
            },
        }
    }

    /// The error of a call that failed.
    fn explained(&self, file: BorrowedFd<'_>, errno: Errno) -> FileIoError {
        let Self { op, addr, offset, len, .. } = *self;
        if errno == Errno::EINVAL && is_direct(file) {
            let [memory, file] = alignments(file);
            return FileIoError::Alignment { op, offset, len, addr, memory, file };
        }
        FileIoError::System { op, offset, len, errno }
    }
}

/// One system call for what is left of `span`. How many bytes it moved.
///
/// # Safety
/// From `span.addr` on, `span.len` bytes are host memory of a region that the caller holds.
pub(super) unsafe fn step(file: BorrowedFd<'_>, span: &Span) -> Result<u64, Errno> {
    let (fd, addr) = (file.as_raw_fd(), (span.addr + span.moved) as *mut libc::c_void);
    let len = (span.len - span.moved).min(PART) as usize;
    let at = (span.offset + span.moved) as i64;
    let moved = match span.op {
        // SAFETY: the caller has these bytes, which the kernel writes.
        FileOp::Read => unsafe { libc::pread64(fd, addr, len, at) },
        // SAFETY: the caller has these bytes, which the kernel reads.
        FileOp::Write => unsafe { libc::pwrite64(fd, addr, len, at) },
    };
    u64::try_from(moved).map_err(|_| Errno::last())
}

/// Whether it was opened with `O_DIRECT`.
pub(super) fn is_direct(file: BorrowedFd<'_>) -> bool {
    let flags = fcntl(file, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
    flags.is_ok_and(|flags| flags.contains(OFlag::O_DIRECT))
}

/// Bytes that the file has now.
///
/// # Errors
/// The system's.
fn size_of_file(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    let status = fstat(file)?;
    if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFBLK {
        return Ok(status.st_size as u64);
    }
    let mut bytes = 0u64;
    // SAFETY: the kernel writes eight bytes to a variable that has them.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) } {
        0 => Ok(bytes),
        _ => Err(Errno::last()),
    }
}

/// The length of a block device in bytes: `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272u32 as libc::Ioctl;

/// The numbers that addresses, and offsets, must be multiples of for `O_DIRECT`, where kernel and file
/// system say.
fn alignments(file: BorrowedFd<'_>) -> [Alignment; 2] {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let (fd, flags, mask) = (file.as_raw_fd(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: an empty path that ends with zero, and room for the answer.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, found.as_mut_ptr()) };
    // SAFETY: all zeros is a value of it, and the kernel has written others at most.
    let found = unsafe { found.assume_init() };
    let known = result == 0 && found.stx_mask & libc::STATX_DIOALIGN != 0;
    [found.stx_dio_mem_align, found.stx_dio_offset_align]
        .map(|bytes| Alignment(Some(bytes).filter(|&bytes| known && bytes > 0)))
}

/// A descriptor of its own for the open file that has the number `number` in this process now. It stays the
/// same file, whatever becomes of the number.
///
/// # Errors
/// No file has the number, or this process has as many as it may have.
pub fn duplicate_descriptor(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: integers; the file itself is neither changed nor closed.
    let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    match fd {
        // SAFETY: the kernel has just made it for this call.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Errno::last()),
    }
}

/// Bytes that files of this process may have: beyond, the system would end it by a signal.
pub(super) struct Limit(u64);

impl Limit {
    pub(super) fn now() -> Self {
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE).unwrap_or((RLIM_INFINITY, 0));
        Self(limit)
    }

    /// Whether a write may end there.
    ///
    /// # Errors
    /// It ends beyond the limit.
    pub(super) fn check(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> Result<(), FileIoError> {
        let (op, limit) = (FileOp::Write, self.0);
        if offset.saturating_add(len) <= limit {
            return Ok(());
        }
        let status = fstat(file).map_err(|errno| FileIoError::System { op, offset, len, errno })?;
        match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => Err(FileIoError::Limit { offset, len, limit }),
            _ => Ok(()),
        }
    }
}

/// Moves bytes between a file and host memory, and waits for them, as long as `go_on` says so.
pub(super) fn perform(
    op: FileOp,
    file: BorrowedFd<'_>,
    offset: u64,
    (memory, at): (&Region, u64),
    len: u64,
    go_on: impl Fn() -> bool,
) -> Result<(), FileIoError> {
    let addr = check(op, memory, at, offset, len)?;
    if memory.kind() != Kind::Host {
        return Err(MemError::NotHost { addr }.into());
    }
    let mut span = Span { op, addr, offset, len, moved: 0 };
    while span.moved < span.len {
        if !go_on() {
            return Err(FileIoError::Stopped);
        }
        // SAFETY: `check` has found the range in the region, which outlives this call.
        let result = unsafe { step(file, &span) };
        span.advance(file, result)?;
    }
    // Orders the bytes before whatever announces them.
    fence(Ordering::Release);
    Ok(())
}

/// Reads `len` bytes at `offset` of `file` into host memory, and waits for them.
///
/// # Errors
/// The range is outside of the region, the file ends before (some of the bytes may have been read), or
/// the system refuses.
pub fn read_file(
    file: BorrowedFd<'_>,
    offset: u64,
    memory: &Region,
    at: u64,
    len: u64,
) -> Result<(), FileIoError> {
    perform(FileOp::Read, file, offset, (memory, at), len, || true)
}

/// Writes `len` bytes of host memory to `file` at `offset`, and waits for the system to take them. It keeps
/// them in its cache, unless the file was opened otherwise.
///
/// # Errors
/// The range is outside of the region, or the system refuses, as for want of room; some of the bytes may
/// have been written.
pub fn write_file(
    file: BorrowedFd<'_>,
    offset: u64,
    memory: &Region,
    at: u64,
    len: u64,
) -> Result<(), FileIoError> {
    Limit::now().check(file, offset, len)?;
    perform(FileOp::Write, file, offset, (memory, at), len, || true)
}
