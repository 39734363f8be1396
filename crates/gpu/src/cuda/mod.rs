//! NVIDIA GPUs, through a driver and a compiler that are loaded at run time: the calls of CUDA's driver
//! for what every driver has to offer.

mod api;
mod attributes;
mod compile;
mod driver;
pub(crate) mod find;
mod memory;
mod module;
mod nvrtc;

pub use crate::driver::{
    CACHE_ENV, COPY_ENV, Cache, CopyCounts, CopyEngine, CopyPath, CopyPolicy, DriverGpu,
};
pub use api::driver_version;
pub use attributes::device_count;
pub use compile::{Origin, cubin, options};
pub use driver::{CudaOptions, open};
pub use memory::owner;
pub use nvrtc::{CompileFailure, Compiled, NVRTC_ENV, Nvrtc, nvrtc};
