//! Memory in which objects of firmware commands lie.

use super::devx::Devx;
use super::error::Mlx5Error;
use super::sys::{MLX5DV_UMEM_MASK_DMABUF, mlx5dv_devx_umem, mlx5dv_devx_umem_in};
use crate::call::object;
use crate::{Owned, sys};
use std::fmt;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use warpverbs_mem::{Kind, Region};

/// Memory that the device reads and writes on behalf of queues in it, whatever keys say. It stays
/// alive until the device has given it up.
pub struct Umem {
    umem: Owned<mlx5dv_devx_umem, Devx, Region>,
    id: u32,
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Umem({:#x}, {:?})", self.id, self.umem.memory())
    }
}

impl Umem {
    /// Registers memory: of the host by its address, of a GPU by a dmabuf.
    pub fn register(devx: &Devx, region: &Region) -> Result<Self, Mlx5Error> {
        let ptr = match region.kind() {
            Kind::Host => by_address(devx, region),
            _ => by_dmabuf(devx, region),
        }?;
        // SAFETY: a live umem.
        let id = unsafe { ptr.as_ref() }.umem_id;
        let destroy = ("mlx5dv_devx_umem_dereg", devx.api().mlx5dv_devx_umem_dereg);
        // SAFETY: registered above.
        let umem = unsafe { Owned::new(ptr, destroy, devx.clone(), region.clone()) };
        Ok(Self { umem, id })
    }

    /// Its number, which mailboxes name.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where `part` begins in it, if it lies in it.
    pub fn offset_of(&self, part: &Region) -> Option<u64> {
        let whole = self.umem.memory();
        let offset = part.addr().checked_sub(whole.addr())?;
        let end = offset.checked_add(part.len() as u64)?;
        (end <= whole.len() as u64).then_some(offset)
    }
}

fn by_address(devx: &Devx, region: &Region) -> Result<NonNull<mlx5dv_devx_umem>, Mlx5Error> {
    let context = devx.context().ptr().as_ptr();
    let (addr, len) = (region.addr() as *mut _, region.len());
    let access = sys::IBV_ACCESS_LOCAL_WRITE;
    // SAFETY: a live context; the region stays allocated while `Umem` holds it.
    let ptr = unsafe { (devx.api().mlx5dv_devx_umem_reg)(context, addr, len, access) };
    Ok(object("mlx5dv_devx_umem_reg", ptr)?)
}

/// Memory that the CPU does not reach, but devices do.
fn by_dmabuf(devx: &Devx, region: &Region) -> Result<NonNull<mlx5dv_devx_umem>, Mlx5Error> {
    let kind = region.kind().to_string();
    let refused = |why| Mlx5Error::NotReached { kind: kind.clone(), why };
    let dmabuf = region.export_dmabuf().map_err(|error| refused(error.to_string()))?;
    let name = "mlx5dv_devx_umem_reg_ex";
    let Some(register) = devx.api().mlx5dv_devx_umem_reg_ex else {
        return Err(refused(format!("libmlx5 has no {name}, rdma-core 35 or newer is needed")));
    };
    let mut umem = mlx5dv_devx_umem_in {
        addr: dmabuf.offset as *mut _,
        size: region.len(),
        access: sys::IBV_ACCESS_LOCAL_WRITE,
        // Any size of page that the driver finds.
        pgsz_bitmap: !0xfff,
        comp_mask: MLX5DV_UMEM_MASK_DMABUF,
        dmabuf_fd: dmabuf.fd.as_raw_fd(),
    };
    // SAFETY: a live context; the kernel keeps the dmabuf, and the region its memory, while `Umem` lives.
    let ptr = unsafe { register(devx.context().ptr().as_ptr(), &mut umem) };
    object(name, ptr).map_err(|error| refused(error.to_string()))
}
