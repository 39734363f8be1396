//! Registered memory.

use super::{Owned, Pd, Sge, VerbsError, access, error::in_range};
use crate::call::object;
use crate::{CallError, sys};
use std::ffi::{c_int, c_void};
use std::fmt;
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
    mr: Owned<sys::ibv_mr, Pd, Region>,
    lkey: u32,
    rkey: u32,
    registration: Registration,
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({:?}, rkey {:#010x})", self.region(), self.rkey)
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
        let (api, flags) = (pd.context().api(), registration.flags());
        let (addr, len) = (region.addr() as *mut c_void, region.len());
        // SAFETY: a live domain; the region stays allocated while `Mr` holds it.
        let mr = unsafe { sys::ibv_reg_mr_any(api, pd.ptr().as_ptr(), addr, len, flags) };
        Self::made(pd, object("ibv_reg_mr", mr)?, region, registration)
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
        let call = "ibv_reg_dmabuf_mr";
        let register = pd.context().api().ibv_reg_dmabuf_mr.ok_or(CallError::absent(call))?;
        let (fd, flags) = (fd.as_raw_fd(), registration.flags() as c_int);
        let (pointer, len, iova) = (pd.ptr().as_ptr(), region.len(), region.addr());
        // SAFETY: a live domain; the kernel checks descriptor and range.
        let mr = unsafe { register(pointer, offset, len, iova, fd, flags) };
        Self::made(pd, object(call, mr)?, region, registration)
    }

    fn made(
        pd: &Pd,
        ptr: NonNull<sys::ibv_mr>,
        region: &Region,
        registration: Registration,
    ) -> Result<Self, VerbsError> {
        // SAFETY: a live memory region.
        let lkey = unsafe { (*ptr.as_ptr()).lkey };
        // SAFETY: as above.
        let rkey = unsafe { (*ptr.as_ptr()).rkey };
        let destroy = ("ibv_dereg_mr", pd.context().api().ibv_dereg_mr);
        // SAFETY: registered by the caller, for this object.
        let mr = unsafe { Owned::new(ptr, destroy, pd.clone(), region.clone()) };
        Ok(Self { mr, lkey, rkey, registration })
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
        self.mr.memory()
    }

    /// How it was registered.
    pub fn registration(&self) -> Registration {
        self.registration
    }

    /// The domain.
    pub fn pd(&self) -> &Pd {
        self.mr.parent()
    }

    /// An entry of a work request's list: `len` bytes at `offset`.
    pub fn sge(&self, offset: u64, len: u32) -> Result<Sge, VerbsError> {
        let region_len = self.region().len() as u64;
        in_range("end of the entry", offset.saturating_add(len.into()), 0, region_len)?;
        Ok(Sge::new(self.region().addr() + offset, len, self.lkey))
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
