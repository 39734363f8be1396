//! libmlx5's view of objects that libibverbs made.

use super::devx::Devx;
use super::error::Mlx5Error;
use super::sys::{MLX5DV_OBJ_AH, MLX5DV_OBJ_PD, mlx5dv_obj};
use crate::call::{check, object};
use crate::sys::zeroed;
use crate::{CallError, Gid, Owned, Path, Pd};
use std::ptr::NonNull;

/// Number of a protection domain, which mailboxes name.
pub fn pd_number(devx: &Devx, pd: &Pd) -> Result<u32, Mlx5Error> {
    let mut out = zeroed();
    let mut obj: mlx5dv_obj = zeroed();
    (obj.pd.in_, obj.pd.out) = (pd.ptr().as_ptr(), &mut out);
    // SAFETY: `pd` and `out` are live, and no other kind is asked for.
    let code = unsafe { (devx.api().mlx5dv_init_obj)(&mut obj, MLX5DV_OBJ_PD) };
    check("mlx5dv_init_obj", code)?;
    Ok(out.pdn)
}

/// How packets to a peer are addressed, all names resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The peer's Ethernet address, or that of the next router; 0 on InfiniBand.
    pub rmac: [u8; 6],
    /// The peer's GID.
    pub rgid: Gid,
    /// On InfiniBand the peer's local identifier, with RoCEv2 the packets' source port.
    pub rlid: u16,
    /// Traffic class.
    pub tclass: u8,
    /// Hops at most.
    pub hop_limit: u8,
}

/// Resolves a path: the kernel looks for the peer's Ethernet address.
pub fn resolve(devx: &Devx, pd: &Pd, path: &Path) -> Result<AddressVector, Mlx5Error> {
    let verbs = devx.context().api();
    let mut attr = path.to_raw();
    // SAFETY: a live domain; the call reads `attr`.
    let ah = unsafe { (verbs.ibv_create_ah)(pd.ptr().as_ptr(), &mut attr) };
    let destroy = ("ibv_destroy_ah", verbs.ibv_destroy_ah);
    // SAFETY: made above, if it was.
    let ah = unsafe { Owned::new(object("ibv_create_ah", ah)?, destroy, pd, ()) };
    let mut out = zeroed();
    let mut obj: mlx5dv_obj = zeroed();
    (obj.ah.in_, obj.ah.out) = (ah.ptr().as_ptr(), &mut out);
    // SAFETY: `ah` and `out` are live, and no other kind is asked for.
    let code = unsafe { (devx.api().mlx5dv_init_obj)(&mut obj, MLX5DV_OBJ_AH) };
    check("mlx5dv_init_obj", code)?;
    let av = NonNull::new(out.av).ok_or(CallError::absent("mlx5dv_init_obj"))?;
    // SAFETY: the handle's address vector, which lives as long.
    let av = unsafe { av.as_ref() };
    Ok(AddressVector {
        rmac: av.rmac,
        rgid: Gid(av.rgid),
        rlid: u16::from_be(av.rlid),
        tclass: av.tclass,
        hop_limit: av.hop_limit,
    })
}
