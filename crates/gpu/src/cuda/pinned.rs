//! Host memory that the GPU reaches: registered with the driver for every device of the process.

use super::context::Context;
use super::deferred_free::{Deferred, defer, reclaim};
use super::lock;
use crate::GpuError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use warpverbs_mem::{Backing, HostBuf, Kind, Region};

const PAGE: u64 = 4096;
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
const ALREADY_REGISTERED: i64 = 712;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const EVERY_CONTEXT_MAPPED: u32 = 1 | 2;
/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IO_MEMORY: u32 = 4;

/// A registered range of whole pages; the registration ends some time after the last clone of the
/// `Arc` is gone, and the pages stay mapped until then.
pub(crate) struct Pinned {
    context: &'static Context,
    start: u64,
    len: u64,
    owner: Owner,
    keep: Region,
}

/// Who registered a range with the driver, and so undoes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Us,
    /// The program itself, by its own use of CUDA.
    Program,
}

// The driver refuses to register a page twice, so ranges are shared by the whole process.
static RANGES: Mutex<BTreeMap<u64, Weak<Pinned>>> = Mutex::new(BTreeMap::new());

impl Pinned {
    /// Registers the pages of `region`, which is host memory, or shares the registration that
    /// covers them already.
    pub(crate) fn new(context: &'static Context, region: &Region) -> Result<Arc<Self>, GpuError> {
        let start = region.addr() / PAGE * PAGE;
        let end = (region.addr() + region.len().max(1) as u64).next_multiple_of(PAGE);
        let mut ranges = lock(&RANGES);
        ranges.retain(|_, pinned| pinned.strong_count() > 0);
        if let Some(found) = covering(&ranges, start, end)? {
            return Ok(found);
        }
        let (start, len, owner) = match region.is_register() {
            true => register_io(context, start, end - start)?,
            false => register(context, start, end - start, EVERY_CONTEXT_MAPPED)?,
        };
        let pinned = Arc::new(Self { context, start, len, owner, keep: region.clone() });
        ranges.insert(start, Arc::downgrade(&pinned));
        Ok(pinned)
    }

    /// Address of the host byte `addr`, which is in the range, for kernels of `context`.
    pub(crate) fn kernel_addr(context: &Context, addr: u64) -> Result<u64, GpuError> {
        let _entered = context.enter()?;
        let mut device = 0;
        // SAFETY: the pointer is to a live local; an address that is not registered is refused.
        unsafe { context.driver().cuMemHostGetDevicePointer_v2(&mut device, addr as *mut _, 0) }?;
        Ok(device)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Takes the lock of the deferred frees and no other: the dropping thread may be the NIC's, and
        // `RANGES` is held by those who register, which can last as long as a kernel.
        let Self { context, start, len, owner, .. } = *self;
        if owner == Owner::Us {
            defer(Deferred::Host { context, start, len, _keep: self.keep.clone() });
        }
    }
}

fn covering(
    ranges: &BTreeMap<u64, Weak<Pinned>>,
    start: u64,
    end: u64,
) -> Result<Option<Arc<Pinned>>, GpuError> {
    for pinned in ranges.range(..end).filter_map(|(_, pinned)| pinned.upgrade()) {
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

/// Registers of a device. Those of a software device are ordinary memory, which the driver refuses as
/// I/O memory and takes otherwise; the other way round it is the same, so at most one of the two works.
fn register_io(
    context: &'static Context,
    start: u64,
    len: u64,
) -> Result<(u64, u64, Owner), GpuError> {
    let refused = match register(context, start, len, EVERY_CONTEXT_MAPPED | IO_MEMORY) {
        Err(GpuError::Driver { call, code, name }) => {
            GpuError::RegisterNotMapped { call, code, name }
        }
        done => return done,
    };
    register(context, start, len, EVERY_CONTEXT_MAPPED).map_err(|_| refused)
}

fn register(
    context: &'static Context,
    start: u64,
    len: u64,
    flags: u32,
) -> Result<(u64, u64, Owner), GpuError> {
    let _entered = context.enter()?;
    // Another thread may be between the last use of the range and deferring its release; hence the turns.
    for _ in 0..100 {
        if let Some((start, len)) = reclaim(start, start + len) {
            return Ok((start, len, Owner::Us));
        }
        // SAFETY: whole pages of host memory, which the caller keeps mapped while registered.
        match unsafe { context.driver().cuMemHostRegister_v2(start as *mut _, len as usize, flags) }
        {
            Ok(()) => return Ok((start, len, Owner::Us)),
            Err(GpuError::Driver { code: ALREADY_REGISTERED, .. }) => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok((start, len, Owner::Program))
}

/// Zero-filled host memory that stays registered as long as any [`Region`] over it lives.
pub(crate) struct SharedMem {
    host: Region,
    _pinned: Arc<Pinned>,
}

impl SharedMem {
    /// At least `len` bytes.
    pub(crate) fn new(context: &'static Context, len: usize) -> Result<Self, GpuError> {
        let host = Region::new(HostBuf::new(len)?);
        let pinned = Pinned::new(context, &host)?;
        Ok(Self { host, _pinned: pinned })
    }

    /// As [`SharedMem::new`], as a region of exactly `len` bytes, and its address in kernels.
    pub(crate) fn region(context: &'static Context, len: usize) -> Result<(Region, u64), GpuError> {
        let region = Region::new(Self::new(context, len)?).slice(0, len)?;
        let kernel_addr = Pinned::kernel_addr(context, region.addr())?;
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
