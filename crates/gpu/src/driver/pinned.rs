//! Host memory that the GPU reaches: registered with the driver for every device of the process.

use super::calls::{Driver, Resource};
use super::lock::lock;
use super::owned::{Owned, reclaim};
use crate::GpuError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use warpverbs_mem::{Backing, HostBuf, Kind, Region};

const PAGE: u64 = 4096;

/// A registered range of whole pages; the registration ends some time after the last clone of the
/// `Arc` is gone, and the pages stay mapped until then. Dropping it takes the lock of what is owned and
/// no other: the dropping thread may be the NIC's, and `RANGES` is held by threads that register, which can
/// last as long as a kernel.
pub(crate) struct Pinned {
    driver: &'static dyn Driver,
    start: u64,
    len: u64,
    /// None if the program registered the range itself, by its own use of the driver.
    _owned: Option<Owned>,
    /// After the registration.
    _keep: Region,
}

// A driver refuses to register a page twice, so ranges are shared by the whole process.
static RANGES: Mutex<Ranges> = Mutex::new(Ranges::new());

/// By first address; one entry for each driver that has the range.
type Ranges = BTreeMap<u64, Vec<Weak<Pinned>>>;

impl Pinned {
    /// Registers the pages of `region`, which is host memory, or shares the registration that
    /// covers them already.
    pub(crate) fn new(driver: &'static dyn Driver, region: &Region) -> Result<Arc<Self>, GpuError> {
        let start = region.addr() / PAGE * PAGE;
        let end = (region.addr() + region.len().max(1) as u64).next_multiple_of(PAGE);
        let mut ranges = lock(&RANGES);
        ranges.retain(|_, all| {
            all.retain(|pinned| pinned.strong_count() > 0);
            !all.is_empty()
        });
        if let Some(found) = covering(&ranges, driver, start, end)? {
            return Ok(found);
        }
        let (start, len, owned) = match region.is_register() {
            true => register_io(driver, start, end - start, region)?,
            false => register(driver, start, end - start, region, false)?,
        };
        let pinned = Arc::new(Self { driver, start, len, _owned: owned, _keep: region.clone() });
        ranges.entry(start).or_default().push(Arc::downgrade(&pinned));
        Ok(pinned)
    }

    /// Address of the host byte `addr`, which is in the range, for kernels of `driver`.
    pub(crate) fn kernel_addr(driver: &'static dyn Driver, addr: u64) -> Result<u64, GpuError> {
        let _entered = driver.entered()?;
        driver.kernel_addr(addr)
    }
}

fn covering(
    ranges: &Ranges,
    driver: &dyn Driver,
    start: u64,
    end: u64,
) -> Result<Option<Arc<Pinned>>, GpuError> {
    let before_end = ranges.range(..end).flat_map(|(_, pinned)| pinned);
    let akin = |pinned: &Arc<Pinned>| pinned.driver.is_akin(driver);
    for pinned in before_end.filter_map(Weak::upgrade).filter(akin) {
        let pinned_end = pinned.start + pinned.len;
        if pinned.start <= start && end <= pinned_end {
            return Ok(Some(pinned));
        }
        if start < pinned_end {
            return Err(GpuError::PartlyMapped {
                start,
                end,
                mapped_start: pinned.start,
                mapped_end: pinned_end,
            });
        }
    }
    Ok(None)
}

/// A registered range: start, length, and its owner if that is this crate.
type Registered = (u64, u64, Option<Owned>);

/// Registers of a device. Those of a software device are ordinary memory, which the driver refuses as
/// I/O memory and takes otherwise; the other way round it is the same, so at most one of the two works.
fn register_io(
    driver: &'static dyn Driver,
    start: u64,
    len: u64,
    keep: &Region,
) -> Result<Registered, GpuError> {
    let is_cuda = matches!(driver.kind(), Kind::Cuda(_));
    let refused = match register(driver, start, len, keep, true) {
        Err(GpuError::Driver { call, code, name }) if is_cuda => {
            GpuError::RegisterNotMapped { call, code, name }
        }
        done => return done,
    };
    register(driver, start, len, keep, false).map_err(|_| refused)
}

fn register(
    driver: &'static dyn Driver,
    start: u64,
    len: u64,
    keep: &Region,
    io: bool,
) -> Result<Registered, GpuError> {
    let _entered = driver.entered()?;
    // Another thread may be between the last use of the range and deferring its release; hence the turns.
    for _ in 0..100 {
        if let Some((start, len, owned)) = reclaim(driver, start, start + len) {
            return Ok((start, len, Some(owned)));
        }
        // SAFETY: whole pages of host memory, which `keep` keeps mapped while they are registered.
        if unsafe { driver.register(start, len, io) }? {
            let owned = Owned::new(driver, Resource::Host(start, len)).keeping(keep.clone());
            return Ok((start, len, Some(owned)));
        }
        warpverbs_mem::pause();
    }
    Ok((start, len, None))
}

/// Zero-filled host memory that stays registered as long as any [`Region`] over it lives.
pub(crate) struct SharedMem {
    host: Region,
    _pinned: Arc<Pinned>,
}

impl SharedMem {
    /// At least `len` bytes.
    pub(crate) fn new(driver: &'static dyn Driver, len: usize) -> Result<Self, GpuError> {
        let host = Region::new(HostBuf::new(len)?);
        let pinned = Pinned::new(driver, &host)?;
        Ok(Self { host, _pinned: pinned })
    }

    /// As [`SharedMem::new`], as a region of exactly `len` bytes, and its address in kernels.
    pub(crate) fn region(
        driver: &'static dyn Driver,
        len: usize,
    ) -> Result<(Region, u64), GpuError> {
        let region = Region::new(Self::new(driver, len)?).slice(0, len)?;
        let kernel_addr = Pinned::kernel_addr(driver, region.addr())?;
        Ok((region, kernel_addr))
    }
}

// SAFETY: `host` is mapped readable and writable while it lives, and `self` holds it.
unsafe impl Backing for SharedMem {
    fn addr(&self) -> u64 {
        self.host.addr()
    }

    fn len(&self) -> usize {
        self.host.len()
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }
}
