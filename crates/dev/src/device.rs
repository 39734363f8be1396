//! Registered memory that only a copy engine reaches.

use std::sync::Arc;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, Region};
use warpverbs_nic::{Mr, Pd, SoftNic};

/// Memory of a device, registered with all rights. Its engine copies when a test says so.
#[derive(Debug)]
pub struct Device {
    /// The key.
    pub mr: Mr,
    /// The bytes, as the host sees them.
    pub view: Region,
    /// The engine.
    pub copier: Arc<LazyCopier>,
}

impl Device {
    /// `len` bytes of device `number`.
    ///
    /// # Panics
    /// There is no memory, or no key.
    pub fn new(nic: &SoftNic, pd: &Pd, len: usize, number: u32) -> Self {
        let copier = Arc::new(LazyCopier::default());
        let (region, view) = LazyMemory::regions(len, number, &copier).expect("memory");
        let mr = nic.reg_mr(pd, &region, Access::all()).expect("a key");
        Self { mr, view, copier }
    }
}
