//! Messages of sockets: parts of memory, and control data.

use std::io;
use std::ptr;
use warpverbs_mem::{Kind, MemError, Region};

/// Part of a region of host memory.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The memory.
    pub region: &'a Region,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

impl Part<'_> {
    /// For the kernel to read or write.
    pub(super) fn vector(&self) -> io::Result<libc::iovec> {
        let invalid = |error: MemError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let addr = self.region.range(self.offset, self.len).map_err(invalid)?;
        if self.region.kind() != Kind::Host {
            return Err(invalid(MemError::NotHost { addr }));
        }
        Ok(libc::iovec { iov_base: ptr::without_provenance_mut(addr as usize), iov_len: self.len })
    }
}

/// The result of a system call.
pub(super) fn returned(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A message of these parts of memory and this control data. Valid as long as neither is moved or
/// dropped.
pub(super) fn message(parts: &mut [libc::iovec], control: &mut [u64]) -> libc::msghdr {
    // SAFETY: a `msghdr` is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    if !control.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(control) as _;
    }
    message
}
