//! Streams.

use super::calls::{Driver, Priority, Resource};
use super::owned::Owned;
use crate::GpuError;

/// A stream that does not synchronise with a default stream. Dropping it returns at once: the driver
/// keeps it until its work has ended.
pub(crate) struct Stream {
    driver: &'static dyn Driver,
    raw: u64,
    _owned: Owned,
}

impl Stream {
    /// A new stream of the device.
    pub(crate) fn new(driver: &'static dyn Driver, priority: Priority) -> Result<Self, GpuError> {
        let _entered = driver.entered()?;
        let raw = driver.stream(priority)?;
        Ok(Self { driver, raw, _owned: Owned::new(driver, Resource::Stream(raw)) })
    }

    /// Its device.
    pub(crate) fn driver(&self) -> &'static dyn Driver {
        self.driver
    }

    /// Its handle.
    pub(crate) fn raw(&self) -> u64 {
        self.raw
    }

    /// Whether all of its work has ended. Never blocks; fails if the work did.
    pub(crate) fn is_idle(&self) -> Result<bool, GpuError> {
        let _entered = self.driver.entered()?;
        self.driver.is_idle(self.raw)
    }
}
