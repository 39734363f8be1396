//! Which NVIDIA GPUs there are.

use super::{api, attributes};
use crate::driver::OpenOptions;
use crate::{Found, Gpu, GpuChoice, GpuError, GpuInfo, GpuKind};
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

/// Every NVIDIA GPU, or why there is none.
pub(crate) fn find() -> Vec<Found> {
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let compiler = super::nvrtc().map(|nvrtc| version(nvrtc.version()));
    let driver = api::driver().and_then(|driver| driver.version()).map(version);
    let text = |fact: &Result<String, GpuError>| match fact {
        Ok(version) => version.clone(),
        Err(error) => error.to_string(),
    };
    let software = vec![("CUDA driver", text(&driver)), ("NVRTC", text(&compiler))];
    let missing = compiler.err().map(|error| format!("only cached kernels can run: {error}"));
    let one = |ordinal, info: Result<GpuInfo, GpuError>| Found {
        name: GpuChoice::Cuda(ordinal).to_string(),
        kind: GpuKind::Cuda,
        unusable: info.as_ref().err().map(ToString::to_string).or_else(|| missing.clone()),
        info: info.ok(),
        software: software.clone(),
    };
    let none = |error: GpuError| Found { name: "cuda".to_owned(), ..one(0, Err(error)) };
    match attributes::device_count() {
        Ok(0) => vec![none(GpuError::NoDevice {
            asked: "cuda".to_owned(),
            found: "a CUDA driver without devices".to_owned(),
        })],
        Ok(count) => (0..count).map(|n| one(n, attributes::describe(n))).collect(),
        Err(error) => vec![none(error)],
    }
}

/// Whether AMD's run time is installed.
pub(crate) fn hip_run_time() -> String {
    let library = api::open_library("HIP run time", &["libamdhip64.so", "libamdhip64.so.6"]);
    library.map_or_else(|error| error.to_string(), |_| "there".to_owned())
}
