//! `/dev/udmabuf`: host memory as a dmabuf.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use zerocopy::{Immutable, IntoBytes};

/// `struct udmabuf_create` of `linux/udmabuf.h`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

const CLOEXEC: u32 = 1;
/// `_IOW('u', 0x42, struct udmabuf_create)`.
const UDMABUF_CREATE: libc::Ioctl = 0x4018_7542;

/// A dmabuf of all `size` bytes of a memfd that cannot get shorter.
pub(crate) fn udmabuf(memfd: &OwnedFd, size: u64) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/udmabuf")?;
    let memfd = u32::try_from(memfd.as_raw_fd()).map_err(io::Error::other)?;
    let create = Create { memfd, flags: CLOEXEC, offset: 0, size };
    // SAFETY: the call reads a `struct udmabuf_create`, which `create` is, and keeps nothing of it.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), UDMABUF_CREATE, &raw const create) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has made the descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
