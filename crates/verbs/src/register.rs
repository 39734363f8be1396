//! Doorbell registers of a device, as memory.

use std::sync::Arc;
use warpverbs_mem::{Backing, Kind, Region};

struct Register<T> {
    addr: u64,
    len: usize,
    _page: Arc<T>,
}

// SAFETY: the caller of `region` vouches for the mapping, and that it can be read.
unsafe impl<T: Send + Sync + 'static> Backing for Register<T> {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn is_register(&self) -> bool {
        true
    }
}

/// The registers at `addr`, of 8 bytes each: written by one store and never read.
///
/// # Safety
/// The `len` bytes are mapped, and may be stored to, until the last holder of `page` has gone.
pub(crate) unsafe fn region<T: Send + Sync + 'static>(
    addr: u64,
    len: usize,
    page: Arc<T>,
) -> Region {
    Region::new(Register { addr, len, _page: page })
}
