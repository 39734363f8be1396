//! Device memory as NICs, hosts and other processes see it: this crate's own, what another library of
//! this process allocated, and what another process shares by an IPC handle.
//!
//! | allocated by | shared with other processes by |
//! |---|---|
//! | virtual memory management, with file descriptors allowed (torch's expandable segments) | a descriptor for each allocation |
//! | `cudaMalloc` and the like | an IPC handle of the whole allocation |
//! | anything else | not at all: the driver's words say why |

use super::calls::{Driver, Resource};
use super::context::Context;
use super::copy::CopyEngine;
use super::heap::Piece;
use super::owned::Owned;
use super::ranges::Known;
use super::transfer::Transfer;
use crate::buffer::{Keep, check_adopted};
use crate::{ArenaError, Buffer, GpuError};
use std::sync::Arc;
use warpverbs_mem::{
    Backing, Copier, Dmabuf, Kind, NotExported, Region, Share, ShareHandle, SharePiece,
};

/// A device and the engines that move the bytes of its memory.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) context: &'static Context,
    pub(crate) copier: Arc<CopyEngine>,
    pub(crate) transfer: Arc<Transfer>,
}

impl Home {
    /// Where its memory lies.
    pub(crate) fn kind(&self) -> Kind {
        self.context.driver().kind()
    }

    /// A dmabuf of the whole allocation that `[addr, addr + len)` lies in, and the offset in it. Whole,
    /// because the driver wants ranges of whole pages; what a NIC may touch is up to its registration.
    pub(crate) fn export_dmabuf(&self, addr: u64, len: u64) -> Result<Dmabuf, NotExported> {
        let driver = self.context.driver();
        let export = || {
            if !driver.info().dmabuf {
                return Err(driver.unsupported("dmabuf export (driver and kernel module)"));
            }
            let what = "a dmabuf of memory that was not allocated by this crate";
            let (base, len) =
                self.context.find(addr, len).ok_or_else(|| driver.unsupported(what))?;
            let _entered = driver.entered()?;
            // SAFETY: a whole live allocation of this device, or several that follow one another.
            let Dmabuf { fd, offset } = unsafe { driver.export_dmabuf(base, len) }?;
            Ok(Dmabuf { fd, offset: offset + addr - base })
        };
        export().map_err(|error: GpuError| NotExported(error.to_string()))
    }

    /// Zeroed memory of this crate's own.
    pub(crate) fn alloc(&self, len: usize) -> Result<Buffer, GpuError> {
        let piece = self.context.take(len as u64)?;
        let buffer = self.buffer(piece.addr(), len, Source::Own(piece));
        self.transfer.zero(buffer.region())?;
        Ok(buffer)
    }

    /// Memory of this device that others allocated. `keep` outlives it.
    pub(crate) fn adopt(&self, addr: u64, len: usize, keep: Keep) -> Result<Buffer, GpuError> {
        check_adopted(addr)?;
        let driver = self.context.driver();
        let entered = driver.entered()?;
        if driver.owner(addr)? != Some(driver.info().ordinal) {
            return Err(driver.unsupported("adopting memory that is not its own"));
        }
        let known = spans(driver, addr, len as u64)?.into_iter();
        let known = known.map(|(base, len)| self.context.add(base, len)).collect();
        drop(entered);
        Ok(self.buffer(addr, len, Source::Adopted { _known: known, _keep: keep }))
    }

    /// `[offset, offset + len)` of another process's memory of `size` bytes, by its IPC handle.
    pub(crate) fn open(
        &self,
        handle: &ShareHandle,
        size: u64,
        (offset, len): (u64, u64),
    ) -> Result<Buffer, ArenaError> {
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(ArenaError::Outside { offset, len, arena: size });
        }
        let driver = self.context.driver();
        let entered = driver.entered()?;
        let addr = driver.open_ipc(handle)?;
        let owned = Owned::new(driver, Resource::Imported(addr));
        let source = Source::Imported { _known: self.context.add(addr, size), _owned: owned };
        let whole = self.buffer(addr, size as usize, source);
        let found = driver.allocation(addr)?.1;
        drop(entered);
        if found < size {
            return Err(ArenaError::WrongDescriptor {
                expected: format!("of an allocation of {size:#x} bytes"),
                found: format!("an IPC handle of one of {found:#x}"),
            });
        }
        Ok(whole.slice(offset, len as usize).map_err(GpuError::from)?)
    }

    fn buffer(&self, addr: u64, len: usize, source: Source) -> Buffer {
        Buffer::of_region(Region::new(DeviceMemory { home: self.clone(), addr, len, source }))
    }
}

/// Where memory comes from, and what holds it.
enum Source {
    /// This crate.
    Own(#[expect(dead_code, reason = "given back on drop")] Piece),
    /// Another library of this process.
    Adopted { _known: Vec<Known>, _keep: Keep },
    /// Another process.
    Imported { _known: Known, _owned: Owned },
}

struct DeviceMemory {
    // Before `home`.
    source: Source,
    home: Home,
    addr: u64,
    len: usize,
}

// SAFETY: `source` holds at least `len` bytes from `addr` on: a piece of the heap, aligned to 256 bytes;
// what the caller of `adopt` promises to keep; or an open IPC handle,
// at an address of a whole allocation.
unsafe impl Backing for DeviceMemory {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> Kind {
        self.home.kind()
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        Some(self.home.copier.clone())
    }

    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        self.home.export_dmabuf(self.addr, self.len as u64)
    }

    fn share(&self, offset: u64, len: u64) -> Result<Share, NotExported> {
        if matches!(self.source, Source::Imported { .. }) {
            return Err(NotExported("this memory is another process's".to_owned()));
        }
        share(self.home.context.driver(), self.addr + offset, len)
            .map_err(|error| NotExported(error.to_string()))
    }
}

/// First address and length of the allocations that `[addr, addr + len)` lies in, which follow one
/// another. The context is current.
fn spans(driver: &dyn Driver, addr: u64, len: u64) -> Result<Vec<(u64, u64)>, GpuError> {
    let (mut found, mut at) = (Vec::new(), addr);
    let end = addr.saturating_add(len.max(1));
    while at < end {
        let (base, size) = driver.allocation(at)?;
        found.push((base, size));
        at = base.saturating_add(size.max(1));
    }
    Ok(found)
}

/// How another process maps `[addr, addr + len)` of this device's memory.
fn share(driver: &'static dyn Driver, addr: u64, len: u64) -> Result<Share, GpuError> {
    let _entered = driver.entered()?;
    let spans = spans(driver, addr, len)?;
    let offset = addr - spans[0].0;
    let pieces = spans.iter().map(|&(base, len)| {
        let handle = match driver.retain(base)? {
            Some(allocation) => {
                let _owned = Owned::new(driver, Resource::Allocation(allocation));
                ShareHandle::Descriptor(driver.export(allocation)?)
            }
            None => driver.export_ipc(base)?,
        };
        Ok(SharePiece { handle, len })
    });
    Ok(Share { pieces: pieces.collect::<Result<_, GpuError>>()?, offset })
}
