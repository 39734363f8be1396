//! Arenas of a device: virtual memory management with file descriptors.
//!
//! Each segment is one allocation, mapped whole: the driver takes no other offset into an allocation
//! than 0. Access is allowed once for each segment, which is what costs (`docs/gpu.md`).

use super::calls::Resource;
use super::memory::Home;
use super::owned::Owned;
use super::ranges::Known;
use crate::GpuError;
use crate::arena::{Arena, ArenaError, Mapped, Reservation, Taken};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use warpverbs_mem::{Copier, Dmabuf, Kind, NotExported, Region};

/// Reserved addresses of the whole process, for mappings that one device may use.
struct Space {
    /// Given back behind the mappings, which are dropped before.
    _owned: Owned,
    home: Home,
    addr: u64,
    len: u64,
    granule: u64,
}

/// Reserves `len` bytes of addresses for memory of a device.
pub(crate) fn reserve(home: Home, len: u64) -> Result<Arena, ArenaError> {
    let driver = home.context.driver();
    if !driver.info().shareable {
        return Err(driver.unsupported("memory shared by file descriptor").into());
    }
    let entered = driver.entered()?;
    let granule = driver.granule()?.max(1);
    let len = len
        .max(1)
        .checked_next_multiple_of(granule)
        .ok_or_else(|| ArenaError::reserve(len, "more than there are addresses"))?;
    let addr = driver.reserve(len, granule).map_err(|error| ArenaError::reserve(len, error))?;
    drop(entered);
    let owned = Owned::new(driver, Resource::Addresses(addr, len));
    Ok(Arena::new(Arc::new(Space { home, addr, len, granule, _owned: owned })))
}

impl Space {
    /// Maps an allocation whose context is current.
    fn map(self: Arc<Self>, range: Taken, allocation: u64) -> Result<Box<dyn Mapped>, GpuError> {
        let (driver, addr, len) = (self.home.context.driver(), self.addr + range.offset, range.len);
        let owned = Owned::new(driver, Resource::Allocation(allocation));
        // SAFETY: addresses of the reservation that `range` gives to this mapping alone; the driver
        // refuses a length that is not the allocation's.
        unsafe { driver.map(addr, len, allocation) }?;
        let mapped = Owned::new(driver, Resource::Mapping(addr, len)).keeping(range);
        // SAFETY: a whole mapping.
        unsafe { driver.allow(addr, len) }?;
        let known = self.home.context.add(addr, len);
        Ok(Box::new(Mapping {
            _known: known,
            _mapped: mapped,
            _allocation: owned,
            allocation,
            space: self,
        }))
    }
}

// SAFETY: reserved until `drop` and longer. `Mapping` maps its range alone, aligned to a granule.
unsafe impl Reservation for Space {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn kind(&self) -> Kind {
        self.home.kind()
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        Some(self.home.copier.clone())
    }

    fn export_dmabuf(&self, addr: u64, len: u64) -> Result<Dmabuf, NotExported> {
        self.home.export_dmabuf(addr, len)
    }

    fn commit(self: Arc<Self>, range: Taken) -> Result<Box<dyn Mapped>, ArenaError> {
        let driver = self.home.context.driver();
        let _entered = driver.entered()?;
        let allocation = driver.create(range.len)?;
        Ok(self.map(range, allocation)?)
    }

    fn attach(self: Arc<Self>, range: Taken, fd: OwnedFd) -> Result<Box<dyn Mapped>, ArenaError> {
        let (driver, len) = (self.home.context.driver(), range.len);
        let wrong = |error: GpuError| match error {
            GpuError::Driver { call, code, name } => ArenaError::WrongDescriptor {
                expected: format!("of {len:#x} bytes of a GPU that {} reaches", driver.label()),
                found: format!("refused by {call}: {name} ({code})"),
            },
            other => other.into(),
        };
        let _entered = driver.entered()?;
        let allocation = driver.import(fd.as_fd()).map_err(wrong)?;
        self.map(range, allocation).map_err(wrong)
    }

    fn zero(&self, region: &Region) -> Result<(), ArenaError> {
        Ok(self.home.transfer.zero(region)?)
    }
}

/// An allocation at its place. Its fields are dropped in this order.
struct Mapping {
    _known: Known,
    /// Keeps others off the addresses until it is gone.
    _mapped: Owned,
    _allocation: Owned,
    allocation: u64,
    space: Arc<Space>,
}

impl Mapped for Mapping {
    fn export(&self) -> Result<OwnedFd, ArenaError> {
        let driver = self.space.home.context.driver();
        let _entered = driver.entered()?;
        Ok(driver.export(self.allocation)?)
    }
}
