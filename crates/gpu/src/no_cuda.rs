//! Substitute for `cuda` where it was not built.

use crate::{Found, Gpu, GpuChoice, GpuError, GpuKind};
use std::sync::Arc;

fn not_built<T>(device: GpuChoice) -> Result<T, GpuError> {
    let what = "running kernels: built without the feature `cuda`";
    Err(GpuError::Unsupported { device: device.to_string(), what })
}

pub(crate) fn usable() -> Result<u32, GpuError> {
    not_built(GpuChoice::Cuda(0))
}

pub(crate) fn open(ordinal: u32) -> Result<Arc<dyn Gpu>, GpuError> {
    not_built(GpuChoice::Cuda(ordinal))
}

pub(crate) fn find() -> Vec<Found> {
    vec![Found {
        name: "cuda".to_owned(),
        kind: GpuKind::Cuda,
        info: None,
        unusable: usable().err().map(|error| error.to_string()),
        software: Vec::new(),
    }]
}

pub(crate) fn hip_run_time() -> String {
    "not looked for".to_owned()
}
