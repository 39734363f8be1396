//! Registered memory.

use super::{Pd, Sge, VerbsError, access, error::in_range};
use crate::{CallError, result, sys};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use warpverbs_mem::{Access, Region};

/// How memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    access: Access,
    /// Flags besides those of the rights.
    flags: u32,
}

impl Registration {
    /// Pinned memory with these rights, its writes in order.
    pub fn new(access: Access) -> Self {
        Self { access, flags: 0 }
    }

    /// The rights.
    pub fn access(self) -> Access {
        self.access
    }

    /// The device's writes to this memory may overtake one another on the way to it; only a
    /// completion tells that all have arrived. Faster on some hosts; wrong for code that polls the
    /// last byte of a message. Left out where the kernel does not know it.
    pub fn relaxed_ordering(self, relaxed: bool) -> Self {
        self.with_flag(sys::IBV_ACCESS_RELAXED_ORDERING, relaxed)
    }

    /// Sets or clears a flag of `enum ibv_access_flags` that is not an access right.
    pub fn with_flag(self, flag: u32, on: bool) -> Self {
        let flags = if on { self.flags | flag } else { self.flags & !flag };
        Self { flags, ..self }
    }

    fn flags(self) -> u32 {
        access::mr_flags(self.access) | self.flags
    }
}

/// Memory that the device may touch; the memory stays alive until the device has given it up.
pub struct Mr {
    pd: Pd,
    ptr: NonNull<sys::ibv_mr>,
    // Dropped by hand, and never if the device will not give the memory up.
    region: ManuallyDrop<Region>,
    lkey: u32,
    rkey: u32,
    registration: Registration,
}

// SAFETY: libibverbs allows the use of a memory region from any thread.
unsafe impl Send for Mr {}
// SAFETY: as above; ours is only read.
unsafe impl Sync for Mr {}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: made by registration and given back once, here.
        match unsafe { result::dereg_mr(self.pd.context().api(), self.ptr) } {
            // SAFETY: the device has given the memory up; dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.region) },
            Err(error) => {
                tracing::error!(region = ?*self.region, %error, "still registered, so never freed");
            }
        }
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({:?}, rkey {:#010x})", *self.region, self.rkey)
    }
}

impl Mr {
    /// Registers `region` by its address: host memory, or device memory that the kernel's peer
    /// memory modules know.
    pub fn register(
        pd: &Pd,
        region: &Region,
        registration: Registration,
    ) -> Result<Self, VerbsError> {
        check(region, registration)?;
        let flags = registration.flags();
        // SAFETY: a live domain; the region stays allocated while `Mr` holds it.
        let ptr = unsafe {
            result::reg_mr(pd.context().api(), pd.ptr(), region.addr(), region.len(), flags)
        };
        Self::made(pd, ptr, region, registration)
    }

    /// Registers `region`, which lies at `offset` of the dmabuf `fd`, under its own addresses. The
    /// device keeps the dmabuf alive; `fd` may be closed afterwards.
    pub fn register_dmabuf(
        pd: &Pd,
        region: &Region,
        fd: BorrowedFd<'_>,
        offset: u64,
        registration: Registration,
    ) -> Result<Self, VerbsError> {
        check(region, registration)?;
        // The kernel maps whole pages, so both must begin at the same place in one.
        if (offset ^ region.addr()) & (page_size() - 1) != 0 {
            return Err(VerbsError::DmabufOffset { offset, addr: region.addr() });
        }
        let (api, len, flags) = (pd.context().api(), region.len(), registration.flags());
        let (fd, iova) = (fd.as_raw_fd(), region.addr());
        // SAFETY: a live domain.
        let ptr = unsafe { result::reg_dmabuf_mr(api, pd.ptr(), fd, offset, len, iova, flags) };
        Self::made(pd, ptr, region, registration)
    }

    fn made(
        pd: &Pd,
        ptr: Result<NonNull<sys::ibv_mr>, CallError>,
        region: &Region,
        registration: Registration,
    ) -> Result<Self, VerbsError> {
        let ptr = ptr?;
        // SAFETY: a live memory region; the same for `rkey`.
        let lkey = unsafe { (*ptr.as_ptr()).lkey };
        // SAFETY: as above.
        let rkey = unsafe { (*ptr.as_ptr()).rkey };
        let region = ManuallyDrop::new(region.clone());
        Ok(Self { pd: pd.clone(), ptr, region, lkey, rkey, registration })
    }

    /// For the owner's work requests.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// For peers.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// How it was registered.
    pub fn registration(&self) -> Registration {
        self.registration
    }

    /// The domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// An entry of a work request's list: `len` bytes at `offset`.
    pub fn sge(&self, offset: u64, len: u32) -> Result<Sge, VerbsError> {
        let region_len = self.region.len() as u64;
        in_range("end of the entry", offset.saturating_add(len.into()), 0, region_len)?;
        Ok(Sge::new(self.region.addr() + offset, len, self.lkey))
    }
}

/// Bytes of a page of this machine.
fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    size.ok().flatten().and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}

fn check(region: &Region, registration: Registration) -> Result<(), VerbsError> {
    in_range("length of the region", region.len() as u64, 1, u64::MAX)?;
    let asked = registration.access;
    if asked.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !asked.contains(Access::LOCAL_WRITE)
    {
        return Err(VerbsError::NeedsLocalWrite { asked });
    }
    Ok(())
}
