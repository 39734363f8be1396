//! Regions that keep nothing alive.

use super::{Backing, Kind, Region};
use std::fmt;
use std::sync::Weak;

/// The place of a [`Region`], without keeping its memory: for those who may use it again, as long as it is
/// somebody's.
#[derive(Clone)]
pub struct WeakRegion {
    addr: u64,
    len: u64,
    kind: Kind,
    backing: Weak<dyn Backing>,
}

impl Region {
    /// The same bytes, not kept.
    pub fn downgrade(&self) -> WeakRegion {
        let Self { addr, len, kind, ref backing } = *self;
        WeakRegion { addr, len, kind, backing: std::sync::Arc::downgrade(backing) }
    }
}

impl WeakRegion {
    /// The region, if its memory is kept by somebody.
    pub fn upgrade(&self) -> Option<Region> {
        let Self { addr, len, kind, .. } = *self;
        self.backing.upgrade().map(|backing| Region { addr, len, kind, backing })
    }
}

impl fmt::Debug for WeakRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakRegion({}, {:#x}+{:#x})", self.kind, self.addr, self.len)
    }
}

#[cfg(test)]
mod tests {
    use crate::HostBuf;

    #[test]
    fn a_weak_region_is_its_memory_and_keeps_none() {
        let all = HostBuf::region(100).unwrap();
        let weak = all.slice(10, 20).unwrap().downgrade();
        let again = weak.upgrade().unwrap();
        assert_eq!((again.addr(), again.len()), (all.addr() + 10, 20));
        drop(all);
        assert!(weak.upgrade().is_some(), "a part keeps all");
        drop(again);
        assert!(weak.upgrade().is_none());
    }
}
