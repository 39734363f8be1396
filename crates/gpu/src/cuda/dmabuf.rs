//! Device memory as a dmabuf, for registration with a real NIC.

use super::api::NOT_SUPPORTED;
use super::context::Context;
use crate::GpuError;
use cudarc::driver::sys;
use std::os::fd::{FromRawFd, OwnedFd};
use warpverbs_mem::Dmabuf;

/// A dmabuf of the whole allocation that `[addr, addr + len)` lies in, and the offset in it. Whole,
/// because the driver wants ranges of whole pages; what a NIC may touch is up to its registration.
pub(crate) fn export(context: &Context, addr: u64, len: u64) -> Result<Dmabuf, GpuError> {
    let unsupported = |what| GpuError::Unsupported { device: context.label(), what };
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
    if context.attribute(attribute)? == 0 {
        return Err(unsupported("dmabuf export (driver and kernel module)"));
    }
    let (base, len) = context
        .heap()
        .allocation(addr, len)
        .ok_or_else(|| unsupported("a dmabuf of memory that was not allocated by this crate"))?;
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let _entered = context.enter()?;
    let mut fd = -1i32;
    // SAFETY: a whole live allocation of this context; a dmabuf handle is an `int`, and the pointer
    // is to a live one.
    let exported = unsafe {
        context.driver().cuMemGetHandleForAddressRange(
            (&raw mut fd).cast(),
            base,
            len as usize,
            kind,
            0,
        )
    };
    match exported {
        Ok(()) => {}
        Err(GpuError::Driver { code: NOT_SUPPORTED, .. } | GpuError::Library { .. }) => {
            return Err(unsupported("dmabuf export"));
        }
        Err(error) => return Err(error),
    }
    // SAFETY: a new descriptor, which the driver leaves to its caller.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Dmabuf { fd, offset: addr - base })
}
