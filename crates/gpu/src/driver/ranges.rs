//! Which device memory this crate knows of.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// Every allocation of one device that this crate uses, by address. Its lock is held for no call of the
/// driver: the copy engines look here.
#[derive(Default)]
pub(crate) struct Ranges(RwLock<BTreeMap<u64, Range>>);

/// An allocation of the driver; it lives as long as it is in use.
struct Range {
    len: u64,
    users: usize,
}

impl Ranges {
    /// The allocations that `[addr, addr + len)` lies in, which follow one another: address and
    /// length of all of them.
    pub(crate) fn find(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let ranges = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (&base, first) = ranges.range(..=addr).next_back()?;
        let end = addr.checked_add(len)?;
        let mut to = base + first.len;
        while to < end {
            to += ranges.get(&to)?.len;
        }
        (addr < to || addr == base + first.len && len == 0).then_some((base, to - base))
    }

    /// Memory is now there, or has one more user, until the result is dropped.
    pub(crate) fn add(&'static self, addr: u64, len: u64) -> Known {
        let mut ranges = self.0.write().unwrap_or_else(PoisonError::into_inner);
        ranges.entry(addr).or_insert(Range { len, users: 0 }).users += 1;
        Known { ranges: self, addr }
    }
}

/// One use of an allocation. Dropped before the memory goes.
pub(crate) struct Known {
    ranges: &'static Ranges,
    addr: u64,
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut ranges = self.ranges.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = ranges.get_mut(&self.addr) {
            range.users -= 1;
            if range.users == 0 {
                ranges.remove(&self.addr);
            }
        }
    }
}
