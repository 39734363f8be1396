//! The list of a vendor's GPUs, for the choice of a device and for `doctor`.

use crate::{Found, GpuChoice, GpuError, GpuInfo, GpuKind};

/// The reports of a vendor's libraries on themselves and on the devices.
pub(crate) struct Vendor {
    pub(crate) kind: GpuKind,
    /// `cuda`
    pub(crate) name: &'static str,
    pub(crate) choice: fn(u32) -> GpuChoice,
    /// The driver: what it is called, and its version.
    pub(crate) driver: (&'static str, Result<(u32, u32), GpuError>),
    pub(crate) compiler: (&'static str, Result<(u32, u32), GpuError>),
    pub(crate) count: Result<u32, GpuError>,
    pub(crate) describe: fn(u32) -> Result<GpuInfo, GpuError>,
}

impl Vendor {
    /// Every device, or why there is none. Makes no context on any.
    pub(crate) fn find(self) -> Vec<Found> {
        let text = |fact: &Result<(u32, u32), GpuError>| match fact {
            Ok((major, minor)) => format!("{major}.{minor}"),
            Err(error) => error.to_string(),
        };
        let software = [&self.driver, &self.compiler];
        let software: Vec<_> = software.iter().map(|(what, fact)| (*what, text(fact))).collect();
        let missing = self.compiler.1.as_ref().err();
        let missing = missing.map(|error| format!("only cached kernels can run: {error}"));
        let one = |name, info: Result<GpuInfo, GpuError>| Found {
            name,
            kind: self.kind,
            unusable: info.as_ref().err().map(ToString::to_string).or_else(|| missing.clone()),
            info: info.ok(),
            software: software.clone(),
        };
        match self.count {
            Ok(0) => vec![one(self.name.to_owned(), Err(none(self.name, self.driver.0)))],
            Ok(count) => {
                (0..count).map(|n| one((self.choice)(n).to_string(), (self.describe)(n))).collect()
            }
            Err(error) => vec![one(self.name.to_owned(), Err(error))],
        }
    }
}

/// The error of a driver without devices.
pub(crate) fn none(asked: &str, driver: &str) -> GpuError {
    GpuError::NoDevice { asked: asked.to_owned(), found: format!("a {driver} without devices") }
}
