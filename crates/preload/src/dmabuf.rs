//! The GPU addresses of dmabufs. A dmabuf does not show its address, so it is recorded when the program
//! has the driver export one.

use crate::process::{Own, file_of};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use warpverbs_uverbs::{Errno, Refusal};

/// An exported dmabuf, by its open file.
struct Exported {
    file: u64,
    address: u64,
    len: u64,
}

/// The dmabufs that were exported last, newest first. Their descriptors may be closed by now, and the
/// kernel gives no other dmabuf their inodes before it has counted through 32 bits at least.
static EXPORTED: Own<Mutex<VecDeque<Exported>>> = Own::new();
/// Programs register a dmabuf soon after they have had it exported.
const KEPT: usize = 4096;

/// The driver has exported `len` bytes at `address` as `fd`.
pub(crate) fn remember(fd: i32, address: u64, len: u64) {
    if let Some(file) = file_of(fd) {
        let mut exported = EXPORTED.get().lock().unwrap_or_else(PoisonError::into_inner);
        exported.truncate(KEPT - 1);
        exported.push_front(Exported { file, address, len });
    }
}

/// The address of `len` bytes at `offset` of the dmabuf `fd`; `None` if it is not known where it lies.
pub(crate) fn find(fd: i32, offset: u64, len: u64) -> Result<Option<u64>, Refusal> {
    let none = || Refusal::new(Errno::EBADF, format!("there is no descriptor {fd}"));
    let file = file_of(fd).ok_or_else(none)?;
    let exported = EXPORTED.get().lock().unwrap_or_else(PoisonError::into_inner);
    let Some(found) = exported.iter().find(|exported| exported.file == file) else {
        return Ok(None);
    };
    match offset.checked_add(len) {
        Some(end) if end <= found.len => Ok(Some(found.address + offset)),
        _ => {
            let why = format!("{len:#x} bytes at {offset:#x} of a dmabuf of {:#x}", found.len);
            Err(Refusal::invalid(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_dmabuf_is_known_by_its_file_and_not_by_its_descriptor() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(find(fd, 0, 1).unwrap(), None);
        remember(fd, 0x7f00_0000, 0x2000);
        let again = file.try_clone().unwrap();
        drop(file);
        let fd = again.as_raw_fd();
        assert_eq!(find(fd, 0x1000, 0x1000).unwrap(), Some(0x7f00_1000));
        for (offset, len) in [(0x1000, 0x1001), (0x2000, 1), (u64::MAX, 2)] {
            assert_eq!(find(fd, offset, len).unwrap_err().errno, Errno::EINVAL, "{offset:#x}");
        }
        // The newest counts.
        remember(fd, 0x6f00_0000, 0x1000);
        assert_eq!(find(fd, 0, 0x1000).unwrap(), Some(0x6f00_0000));
        // So many others that it is forgotten.
        let other = tempfile::tempfile().unwrap();
        (0..KEPT).for_each(|_| remember(other.as_raw_fd(), 0x1000, 0x1000));
        assert_eq!(find(fd, 0, 0x1000).unwrap(), None);
        assert_eq!(find(-1, 0, 1).unwrap_err().errno, Errno::EBADF);
    }
}
