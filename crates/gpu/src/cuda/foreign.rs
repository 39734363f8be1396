//! Device memory of others: what another library of this process allocated, and what another
//! process shares by an IPC handle.
//!
//! | allocated by | shared with other processes by |
//! |---|---|
//! | virtual memory management, with file descriptors allowed (torch's expandable segments) | a descriptor for each allocation |
//! | `cudaMalloc` | an IPC handle of the whole allocation |
//! | anything else | not at all: the driver's words say why |

use super::CudaDevice;
use super::api::Driver;
use super::arena::{Handle, export};
use super::context::Context;
use super::copy::CopyEngine;
use super::deferred_free::{Deferred, defer};
use super::dmabuf;
use crate::buffer::check_adopted;
use crate::{ArenaError, Buffer, GpuError, Keep};
use cudarc::driver::sys;
use std::sync::Arc;
use warpverbs_mem::{
    Backing, Copier, Dmabuf, Kind, NotExported, Region, Share, ShareHandle, SharePiece,
};

/// Allocations that follow one another: first address and length of each.
type Spans = Vec<(u64, u64)>;

/// The allocations that `[addr, addr + len)` lies in.
fn spans(context: &Context, addr: u64, len: u64) -> Result<Spans, GpuError> {
    let _entered = context.enter()?;
    let (mut found, mut at) = (Spans::new(), addr);
    let end = addr.saturating_add(len.max(1));
    while at < end {
        let (mut base, mut size) = (0, 0);
        // SAFETY: pointers to live locals; the driver refuses an address that it does not know.
        unsafe { context.driver().cuMemGetAddressRange_v2(&mut base, &mut size, at) }?;
        found.push((base, size as u64));
        at = base.saturating_add(size.max(1) as u64);
    }
    Ok(found)
}

/// On which device the memory at `addr` is; None for memory of the host.
fn ordinal(driver: &Driver, addr: u64) -> Result<Option<i32>, GpuError> {
    let (mut kind, mut ordinal) = (0u32, 0i32);
    let attribute = sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: an `unsigned int`, a live local; the driver refuses an address that it does not know.
    unsafe { driver.cuPointerGetAttribute((&raw mut kind).cast(), attribute, addr) }?;
    let attribute = sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: an `int`, a live local; as above.
    unsafe { driver.cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, addr) }?;
    let device = sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32;
    Ok((kind == device).then_some(ordinal))
}

/// The device on which the memory at `addr` is, whoever allocated it; `None` for memory of the host.
///
/// # Errors
/// There is no driver, or it does not know the address.
pub fn owner(addr: u64) -> Result<Option<u32>, GpuError> {
    Ok(ordinal(super::api::driver()?, addr)?.map(|ordinal| ordinal as u32))
}

/// Memory of `device` that others allocated. `keep` outlives it.
pub(super) fn adopt(
    device: &CudaDevice,
    addr: u64,
    len: usize,
    keep: Keep,
) -> Result<Buffer, GpuError> {
    check_adopted(addr)?;
    let context = device.context;
    let entered = context.enter()?;
    if ordinal(context.driver(), addr)? != Some(context.ordinal() as i32) {
        return Err(device.unsupported("adopting memory that is not its own"));
    }
    drop(entered);
    let spans = spans(context, addr, len as u64)?;
    for &(base, len) in &spans {
        context.heap().insert(base, len);
    }
    let copier = device.copier.clone();
    let memory = Foreign { context, copier, addr, len, spans, keep: Some(keep) };
    Ok(Buffer::of_region(Region::new(memory)))
}

/// Memory of another process by its IPC handle.
pub(super) fn open(
    device: &CudaDevice,
    (handle, size): ([u8; 64], u64),
    (offset, len): (u64, u64),
) -> Result<Buffer, ArenaError> {
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(ArenaError::Outside { offset, len, arena: size });
    }
    let context = device.context;
    let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| byte.cast_signed()) };
    let lazy = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    let entered = context.enter()?;
    let mut addr = 0;
    // SAFETY: the pointer is to a live local; the driver checks the handle.
    unsafe { context.driver().cuIpcOpenMemHandle_v2(&mut addr, handle, lazy) }?;
    drop(entered);
    // From here on, dropping it closes the handle.
    let (spans, copier) = (vec![(addr, size)], device.copier.clone());
    let memory = Foreign { context, copier, addr, len: size as usize, spans, keep: None };
    context.heap().insert(addr, size);
    let wrong = |expected: u64, found: u64| ArenaError::WrongDescriptor {
        expected: format!("of an allocation of {expected:#x} bytes"),
        found: format!("an IPC handle of one of {found:#x}"),
    };
    let found = self::spans(context, addr, 1)?[0].1;
    if found < size {
        return Err(wrong(size, found));
    }
    let slice = Buffer::of_region(Region::new(memory)).slice(offset, len as usize);
    Ok(slice.map_err(GpuError::from)?)
}

struct Foreign {
    context: &'static Context,
    copier: Arc<CopyEngine>,
    addr: u64,
    len: usize,
    spans: Spans,
    /// None for memory of another process, whose handle is closed on drop.
    keep: Option<Keep>,
}

// SAFETY: for a library's memory the caller of `adopt` promises it; an open IPC handle keeps its
// range mapped. The address was checked, or is one that `cuMemAlloc` returned.
unsafe impl Backing for Foreign {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> Kind {
        Kind::Cuda(self.context.ordinal())
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        Some(self.copier.clone())
    }

    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        let exported = dmabuf::export(self.context, self.addr, self.len as u64);
        exported.map_err(|error| NotExported(error.to_string()))
    }

    fn share(&self, offset: u64, len: u64) -> Result<Share, NotExported> {
        if self.keep.is_none() {
            return Err(NotExported("this memory is another process's".to_owned()));
        }
        share(self.context, self.addr + offset, len)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        for &(base, _) in &self.spans {
            self.context.heap().remove(base);
        }
        if self.keep.is_none() {
            defer(Deferred::Ipc { context: self.context, addr: self.addr });
        }
    }
}

/// How another process maps `[addr, addr + len)` of this device's memory.
pub(super) fn share(context: &'static Context, addr: u64, len: u64) -> Result<Share, NotExported> {
    try_share(context, addr, len).map_err(|error| NotExported(error.to_string()))
}

fn try_share(context: &'static Context, addr: u64, len: u64) -> Result<Share, GpuError> {
    let spans = spans(context, addr, len)?;
    let _entered = context.enter()?;
    let offset = addr - spans[0].0;
    let pieces = spans.iter().map(|&(base, len)| {
        let handle = match retain(context, base)? {
            Some(handle) => ShareHandle::Descriptor(export(context, &handle)?),
            None => ShareHandle::CudaIpc(ipc_handle(context, base)?),
        };
        Ok(SharePiece { handle, len })
    });
    Ok(Share { pieces: pieces.collect::<Result<_, GpuError>>()?, offset })
}

/// The allocation behind an address, if it was made by virtual memory management.
fn retain(context: &'static Context, addr: u64) -> Result<Option<Handle>, GpuError> {
    let mut raw = 0;
    // SAFETY: the pointer is to a live local; the driver refuses addresses of other memory.
    match unsafe { context.driver().cuMemRetainAllocationHandle(&mut raw, addr as *mut _) } {
        Ok(()) => Ok(Some(Handle { context, raw })),
        Err(GpuError::Driver { .. } | GpuError::Library { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn ipc_handle(context: &Context, base: u64) -> Result<[u8; 64], GpuError> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the pointer is to a live local; the driver refuses memory that it cannot share.
    unsafe { context.driver().cuIpcGetMemHandle(&mut handle, base) }?;
    Ok(handle.reserved.map(|byte| byte.cast_unsigned()))
}
