//! A doorbell register of a device, as memory.

use std::sync::Arc;
use warpverbs_mem::{Backing, Kind, Region};

/// Bytes of a register that are written: one doorbell.
const DOORBELL: usize = 8;

struct Register<T> {
    addr: u64,
    _page: Arc<T>,
}

// SAFETY: the caller of `region` vouches for the mapping, and that it can be read.
unsafe impl<T: Send + Sync + 'static> Backing for Register<T> {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> usize {
        DOORBELL
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn is_register(&self) -> bool {
        true
    }
}

/// The register at `addr`: 8 bytes, written by one store and never read.
///
/// # Safety
/// The 8 bytes are mapped, and may be stored to, until the last holder of `page` has gone.
pub(crate) unsafe fn region<T: Send + Sync + 'static>(addr: u64, page: Arc<T>) -> Region {
    Region::new(Register { addr, _page: page })
}
