//! The state of one device of a driver, shared by everything that opens it.

use super::cache::Cache;
use super::calls::{Driver, Functions};
use super::copy_policy::CopyPath;
use super::heap::{Heap, Piece};
use super::lock::lock;
use super::modules::Modules;
use super::occupancy::{Occupancy, limit};
use super::ranges::{Known, Ranges};
use crate::{GpuError, GpuKind, Image};
use std::sync::{Mutex, PoisonError, RwLock};

/// A device's context, which it shares with every other user of the driver in this process. Made once
/// and never given back.
pub(crate) struct Context {
    driver: Box<dyn Driver>,
    ranges: Ranges,
    heap: Heap,
    modules: Modules,
    occupancy: Occupancy,
}

// By itself, and held for no call of the driver: the copy engines look here.
static CONTEXTS: RwLock<Vec<&'static Context>> = RwLock::new(Vec::new());

fn known(wanted: impl Fn(&Context) -> bool) -> Option<&'static Context> {
    let contexts = CONTEXTS.read().unwrap_or_else(PoisonError::into_inner);
    contexts.iter().find(|context| wanted(context)).copied()
}

impl Context {
    /// The context of device `ordinal` of a kind; `open` has the driver make one.
    pub(crate) fn get(
        kind: GpuKind,
        ordinal: u32,
        open: impl FnOnce() -> Result<Box<dyn Driver>, GpuError>,
    ) -> Result<&'static Self, GpuError> {
        static MAKING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = lock(&MAKING);
        let is_it = |context: &Self| {
            let info = context.driver.info();
            (info.kind, info.ordinal) == (kind, ordinal)
        };
        if let Some(context) = known(is_it) {
            return Ok(context);
        }
        let driver = open()?;
        let occupancy =
            Occupancy::new(driver.kind().to_string(), limit(driver.threads_per_multiprocessor()));
        let (ranges, heap, modules) = (Ranges::default(), Heap::default(), Modules::default());
        let context: &'static Self =
            Box::leak(Box::new(Self { driver, ranges, heap, modules, occupancy }));
        CONTEXTS.write().unwrap_or_else(PoisonError::into_inner).push(context);
        Ok(context)
    }

    /// The context whose device memory `[addr, addr + len)` is, as far as this crate allocated it;
    /// `likely` is asked first.
    pub(crate) fn owning(likely: &'static Self, addr: u64, len: u64) -> Option<&'static Self> {
        let owns = |context: &Self| context.ranges.find(addr, len).is_some();
        let akin = |context: &Self| context.driver.is_akin(&*likely.driver) && owns(context);
        if owns(likely) { Some(likely) } else { known(akin) }
    }

    /// The driver, for this device.
    pub(crate) fn driver(&'static self) -> &'static dyn Driver {
        &*self.driver
    }

    /// The driver's own way for copies inside the device.
    pub(crate) fn direct_path(&self) -> CopyPath {
        if self.driver.has_path(CopyPath::Batch) { CopyPath::Batch } else { CopyPath::Async }
    }

    /// Device memory, not zeroed.
    pub(crate) fn take(&'static self, len: u64) -> Result<Piece, GpuError> {
        self.heap.take(self.driver(), &self.ranges, len)
    }

    /// Memory that was mapped by other means is there until the result is dropped.
    pub(crate) fn add(&'static self, addr: u64, len: u64) -> Known {
        self.ranges.add(addr, len)
    }

    /// The known allocations that `[addr, addr + len)` lies in.
    pub(crate) fn find(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        self.ranges.find(addr, len)
    }

    /// Every kernel of `image`, compiled and loaded if this is the first time.
    pub(crate) fn functions(
        &'static self,
        image: &'static Image,
        cache: &Cache,
    ) -> Result<&'static Functions, GpuError> {
        self.modules.get(self.driver(), image, cache)
    }

    pub(crate) fn occupancy(&'static self) -> &'static Occupancy {
        &self.occupancy
    }
}
