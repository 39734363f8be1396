//! Doorbell registers.

use super::devx::Devx;
use super::error::Mlx5Error;
use super::sys::{MLX5DV_UAR_ALLOC_TYPE_NC, MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED, mlx5dv_devx_uar};
use crate::call::object;
use crate::register::region;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use warpverbs_mem::Region;

/// Whose register it is. Both are mapped without caching: an 8-byte store is a doorbell at once, and
/// there is nothing to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UarKind {
    /// Its own.
    Dedicated,
    /// One register for all users of this context: doorbells say which queue they are for.
    Shared,
}

/// A doorbell register. Cloning shares it.
#[derive(Clone)]
pub struct Uar {
    inner: Arc<Inner>,
}

struct Inner {
    ptr: NonNull<mlx5dv_devx_uar>,
    register: u64,
    page: u32,
    kind: UarKind,
    devx: Devx,
}

// SAFETY: libmlx5 allows the use of a register from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above; ours is only read.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: allocated, and given back once, here.
        unsafe { (self.devx.api().mlx5dv_devx_free_uar)(self.ptr.as_ptr()) }
    }
}

impl fmt::Debug for Uar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uar(page {:#x}, {:?})", self.inner.page, self.inner.kind)
    }
}

impl Uar {
    /// A register of its own, or else (before rdma-core 45) that of the context.
    ///
    /// BlueFlame registers are not taken: their stores are combined, and a thread that rings them must
    /// flush, which the posting protocol does not.
    pub fn alloc(devx: &Devx) -> Result<Self, Mlx5Error> {
        Self::of_kind(devx, UarKind::Dedicated).or_else(|_| Self::of_kind(devx, UarKind::Shared))
    }

    /// A register of this kind, without a second try.
    ///
    /// # Errors
    /// The library knows no such kind (dedicated ones came with rdma-core 45), or the device has no more.
    pub fn of_kind(devx: &Devx, kind: UarKind) -> Result<Self, Mlx5Error> {
        let flags = match kind {
            UarKind::Dedicated => MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED,
            UarKind::Shared => MLX5DV_UAR_ALLOC_TYPE_NC,
        };
        let context = devx.context().ptr().as_ptr();
        // SAFETY: a live context.
        let ptr = unsafe { (devx.api().mlx5dv_devx_alloc_uar)(context, flags) };
        let ptr = object("mlx5dv_devx_alloc_uar", ptr)?;
        // SAFETY: a live UAR.
        let raw = unsafe { ptr.as_ref() };
        let (register, page) = (raw.reg_addr as u64, raw.page_id);
        Ok(Self { inner: Arc::new(Inner { ptr, register, page, kind, devx: devx.clone() }) })
    }

    /// Number of its page, which mailboxes name.
    pub fn page(&self) -> u32 {
        self.inner.page
    }

    /// Whose register it is.
    pub fn kind(&self) -> UarKind {
        self.inner.kind
    }

    /// The register: 8 bytes, written by one store and never read.
    pub fn register(&self) -> Region {
        // SAFETY: the page is mapped until the UAR is freed, which is when the last holder of `Inner` goes, and every
        // processor that maps it writable can read it too; the result of a read is meaningless. libmlx5 puts the
        // register at byte 0x800 of the page, or at a multiple of 0x100 behind it.
        unsafe { region(self.inner.register, size_of::<u64>(), self.inner.clone()) }
    }
}
