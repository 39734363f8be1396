//! Functions of Broadcom's own libbnxt_re that rdma-core's has not: queues in memory of the program, and
//! doorbell pages. `warpverbs run` makes `libbnxt_re.so` a name of this library, so that programs which load it
//! find them; objects that they know, contexts and protection domains, are rdma-core's libbnxt_re's.
//!
//! CQs and QPs are made by that library, too, and only their memory is another: `queues`.

pub mod queues;

use super::call::{code, get, page_of, pointer, put};
use super::objects::VerbsContext;
use crate::bells;
use crate::dmabuf;
use crate::queues::queue;
use crate::say::say;
use crate::settings::Settings;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use warpverbs_bnxt::dv::{DbRegionAttr, UMEM_DMABUF, UmemRegAttr};

/// Bytes of a doorbell page.
const PAGE: usize = 4096;

/// Registered memory.
struct Umem {
    address: u64,
    bytes: u64,
}

/// `void *bnxt_re_dv_umem_reg(struct ibv_context *, struct bnxt_re_dv_umem_reg_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_umem_reg(
    context: *const VerbsContext,
    attr: *const UmemRegAttr,
) -> *mut c_void {
    pointer(|| {
        // SAFETY: as the caller says.
        unsafe { get(context) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        let refused = |refusal: warpverbs_uverbs::Refusal| {
            if Settings::get().verbose {
                say!("bnxt_re_dv_umem_reg: {refusal}");
            }
            refusal.errno.number()
        };
        let address = match attr.comp_mask {
            0 => attr.addr,
            UMEM_DMABUF => dmabuf::find(attr.dmabuf_fd, attr.addr, attr.size)
                .map_err(refused)?
                .ok_or(libc::EOPNOTSUPP)?,
            _ => return Err(libc::EOPNOTSUPP),
        };
        queue("memory for queues", address, attr.size).map_err(refused)?;
        Ok(Box::into_raw(Box::new(Umem { address, bytes: attr.size })).cast())
    })
}

/// `int bnxt_re_dv_umem_dereg(void *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_umem_dereg(umem: *mut c_void) -> c_int {
    code(|| {
        if umem.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: from `bnxt_re_dv_umem_reg`, and given back once, as the caller says.
        drop(unsafe { Box::from_raw(umem.cast::<Umem>()) });
        Ok(())
    })
}

/// The address of `bytes` bytes at `offset` of registered memory.
///
/// # Safety
/// The handle is 0, or of memory that is registered.
unsafe fn within(handle: u64, offset: u64, bytes: u64) -> Result<u64, c_int> {
    // SAFETY: as the caller says.
    let umem = unsafe { get(handle as *const Umem) }?;
    let end = offset.checked_add(bytes).filter(|end| *end <= umem.bytes);
    end.map(|_| umem.address + offset).ok_or(libc::EINVAL)
}

/// `struct bnxt_re_dv_db_region_attr *bnxt_re_dv_alloc_db_region(struct ibv_context *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_alloc_db_region(
    context: *const VerbsContext,
) -> *mut DbRegionAttr {
    pointer(|| {
        // SAFETY: as the caller says.
        let fd = unsafe { get(context) }?.fd;
        let (rights, offset) = (libc::PROT_READ | libc::PROT_WRITE, bells::OFFSET as libc::off_t);
        // SAFETY: a new mapping, where the kernel wants it.
        let page = unsafe { libc::mmap(null_mut(), PAGE, rights, libc::MAP_SHARED, fd, offset) };
        if page == libc::MAP_FAILED {
            return Err(nix::errno::Errno::last_raw());
        }
        let (umdbr, dbr) = (bells::OFFSET, page as u64);
        Ok(Box::into_raw(Box::new(DbRegionAttr { handle: 0, dpi: 0, umdbr, dbr })))
    })
}

/// `int bnxt_re_dv_free_db_region(struct ibv_context *, struct bnxt_re_dv_db_region_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_free_db_region(
    _: *const VerbsContext,
    region: *mut DbRegionAttr,
) -> c_int {
    code(|| {
        if region.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: from `bnxt_re_dv_alloc_db_region`, and given back once, as the caller says.
        let region = unsafe { Box::from_raw(region) };
        bells::forget(region.dbr);
        // SAFETY: mapped by `bnxt_re_dv_alloc_db_region`.
        unsafe { libc::munmap(region.dbr as *mut c_void, PAGE) };
        Ok(())
    })
}

/// `int bnxt_re_dv_get_default_db_region(struct ibv_context *, struct bnxt_re_dv_db_region_attr *)`: the page
/// that libbnxt_re has mapped with the first protection domain.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_get_default_db_region(
    context: *const VerbsContext,
    out: *mut DbRegionAttr,
) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let dbr = page_of(unsafe { get(context) }?)?;
        let umdbr = bells::OFFSET;
        // SAFETY: null, or room for it, as the caller says.
        unsafe { put(out, DbRegionAttr { handle: 0, dpi: 0, umdbr, dbr }) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::from_ref;

    #[test]
    fn memory_outside_of_what_is_registered_is_refused() {
        let umem = Umem { address: 0x7000, bytes: 0x1000 };
        let handle = from_ref(&umem) as u64;
        // SAFETY: a live value, or 0.
        let within = |handle, offset, bytes| unsafe { within(handle, offset, bytes) };
        assert_eq!(within(handle, 0x800, 0x800), Ok(0x7800));
        for (handle, offset, bytes) in
            [(handle, 0x801, 0x800), (handle, 0, 0x1001), (handle, u64::MAX, 1), (0, 0, 1)]
        {
            assert_eq!(within(handle, offset, bytes), Err(libc::EINVAL));
        }
    }
}
