//! Protection domains and registered memory.

use super::{CallError, check, object};
use crate::sys::{self, Api};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// A protection domain.
///
/// # Safety
/// `context` is live.
pub unsafe fn alloc_pd(
    api: &Api,
    context: NonNull<sys::ibv_context>,
) -> Result<NonNull<sys::ibv_pd>, CallError> {
    // SAFETY: forwarded to the caller.
    object("ibv_alloc_pd", unsafe { (api.ibv_alloc_pd)(context.as_ptr()) })
}

/// Gives a protection domain back.
///
/// # Safety
/// `pd` is live and not used after a success.
pub unsafe fn dealloc_pd(api: &Api, pd: NonNull<sys::ibv_pd>) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_dealloc_pd", unsafe { (api.ibv_dealloc_pd)(pd.as_ptr()) })
}

/// Registers `[addr, addr + len)`. Optional access flags are left out where the library or the
/// kernel does not know them.
///
/// # Safety
/// `pd` is live. The range stays allocated until [`dereg_mr`] has succeeded.
pub unsafe fn reg_mr(
    api: &Api,
    pd: NonNull<sys::ibv_pd>,
    addr: u64,
    len: usize,
    access: u32,
) -> Result<NonNull<sys::ibv_mr>, CallError> {
    // SAFETY: forwarded to the caller.
    let mr = unsafe { sys::ibv_reg_mr_any(api, pd.as_ptr(), addr as *mut c_void, len, access) };
    object("ibv_reg_mr", mr)
}

/// Registers `len` bytes at `offset` of the dmabuf `fd`, under the addresses from `iova`. Needs
/// rdma-core 34.
///
/// # Safety
/// `pd` is live.
pub unsafe fn reg_dmabuf_mr(
    api: &Api,
    pd: NonNull<sys::ibv_pd>,
    fd: c_int,
    offset: u64,
    len: usize,
    iova: u64,
    access: u32,
) -> Result<NonNull<sys::ibv_mr>, CallError> {
    const CALL: &str = "ibv_reg_dmabuf_mr";
    let register = api.ibv_reg_dmabuf_mr.ok_or(CallError::absent(CALL))?;
    // SAFETY: forwarded to the caller; the kernel checks descriptor and range.
    let mr = unsafe { register(pd.as_ptr(), offset, len, iova, fd, access as c_int) };
    object(CALL, mr)
}

/// Takes a registration back: after it the device touches the memory no more.
///
/// # Safety
/// `mr` is live and not used after a success.
pub unsafe fn dereg_mr(api: &Api, mr: NonNull<sys::ibv_mr>) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_dereg_mr", unsafe { (api.ibv_dereg_mr)(mr.as_ptr()) })
}
