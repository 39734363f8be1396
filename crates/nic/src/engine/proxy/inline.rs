//! Registered memory for inline data beyond the device's limit.

use crate::proxy_device::Staging;
use warpverbs_rdma::Sge;

/// Slots for inline data beyond what the device takes, used and freed in order.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) staging: Staging,
    count: u64,
    next: u64,
    used: u64,
}

impl Slots {
    pub(super) fn new(staging: Staging) -> Self {
        let count = staging.memory.len() as u64 / u64::from(staging.slot.max(1));
        Self { staging, count, next: 0, used: 0 }
    }

    /// Copies `bytes` into the next slot, if it is free: where they lie.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Sge> {
        if self.used == self.count {
            return None;
        }
        let offset = self.next % self.count * u64::from(self.staging.slot);
        self.staging.memory.write(offset, bytes).ok()?;
        (self.next, self.used) = (self.next + 1, self.used + 1);
        let (addr, len) = (self.staging.memory.addr() + offset, bytes.len() as u32);
        Some(Sge { addr, len, lkey: self.staging.lkey })
    }

    /// The one that was taken first is free.
    pub(super) fn give(&mut self) {
        self.used = self.used.saturating_sub(1);
    }

    /// The one that was taken last was not needed.
    pub(super) fn untake(&mut self) {
        (self.next, self.used) = (self.next - 1, self.used - 1);
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}
