//! Which NVIDIA GPUs there are.

use super::{api, attributes};
use crate::driver::{OpenOptions, Vendor};
use crate::{Found, Gpu, GpuChoice, GpuError, GpuKind};
use std::sync::Arc;

/// How many GPUs there are, if kernels can be compiled for them.
pub(crate) fn usable() -> Result<u32, GpuError> {
    // The driver first: without one, a missing compiler is not what stands in the way.
    api::driver().and_then(|_| super::nvrtc())?;
    attributes::device_count()
}

/// Opens a GPU with default settings.
pub(crate) fn open(ordinal: u32) -> Result<Arc<dyn Gpu>, GpuError> {
    Ok(Arc::new(super::open(ordinal, OpenOptions::default())?))
}

pub(crate) use super::{open as open_with, owner};

/// Every NVIDIA GPU, or why there is none.
pub(crate) fn find() -> Vec<Found> {
    let vendor = Vendor {
        kind: GpuKind::Cuda,
        name: "cuda",
        choice: GpuChoice::Cuda,
        driver: ("CUDA driver", api::driver_version()),
        compiler: ("NVRTC", super::nvrtc().map(|compiler| compiler.version())),
        count: attributes::device_count(),
        describe: attributes::describe,
    };
    vendor.find()
}
