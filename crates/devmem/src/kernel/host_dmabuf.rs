//! Host memory that the kernel takes for device memory.

use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use warpverbs_gpu::Buffer;
use warpverbs_mem::{map_sealed, sealed_memfd};

/// Host memory with a dmabuf (`CONFIG_UDMABUF`): what a NIC puts there by device-memory TCP, the
/// host reads without a GPU.
pub struct HostDmabuf {
    memory: Buffer,
    dmabuf: OwnedFd,
}

impl HostDmabuf {
    /// `len` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// There is no `/dev/udmabuf`, or it refuses.
    pub fn new(len: u64) -> io::Result<Self> {
        let memfd = sealed_memfd(len)?;
        let memory = Buffer::of_region(map_sealed(&memfd, len)?);
        Ok(Self { memory, dmabuf: sys::udmabuf(&memfd, len)? })
    }

    /// The bytes.
    pub fn memory(&self) -> &Buffer {
        &self.memory
    }
}

impl AsFd for HostDmabuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dmabuf.as_fd()
    }
}
