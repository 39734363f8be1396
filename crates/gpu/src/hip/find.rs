//! Which AMD GPUs there are.

use super::{attributes, driver, hip_version, hiprtc};
use crate::driver::{OpenOptions, Vendor, none};
use crate::{Found, Gpu, GpuChoice, GpuError, GpuKind};
use std::sync::Arc;

const DRIVER: &str = "HIP run time";

/// How many devices `auto` may take: kernels can be compiled, and no device is emulated.
pub(crate) fn usable() -> Result<u32, GpuError> {
    let count = attributes::device_count()?;
    if count == 0 {
        return Err(none("hip", DRIVER));
    }
    if attributes::describe(0)?.is_emulated() {
        let what = "being chosen by auto: it is an emulator, for tests";
        return Err(GpuError::Unsupported { device: "hip:0".to_owned(), what });
    }
    hiprtc()?;
    Ok(count)
}

/// Opens a GPU with default settings.
pub(crate) fn open(ordinal: u32) -> Result<Arc<dyn Gpu>, GpuError> {
    Ok(Arc::new(driver::open(ordinal, OpenOptions::default())?))
}

pub(crate) use super::{open as open_with, owner};

/// Every AMD GPU, or why there is none.
pub(crate) fn find() -> Vec<Found> {
    let vendor = Vendor {
        kind: GpuKind::Hip,
        name: "hip",
        choice: GpuChoice::Hip,
        driver: (DRIVER, hip_version()),
        compiler: ("HIPRTC", hiprtc().map(|compiler| compiler.version())),
        count: attributes::device_count(),
        describe: attributes::describe,
    };
    vendor.find()
}
