//! HIPRTC, the run-time compiler of HIP: where it is found, and its options.

use super::api::api;
use crate::driver::Cache;
use crate::driver::compile::{Origin, Request};
use crate::driver::rtc::{Compiler, Names};
use crate::library::open_library;
use crate::{GpuError, Image};
use std::sync::OnceLock;

pub(super) const NAMES: Names = Names { library: "HIPRTC", prefix: "hiprtc", code: "Code" };

/// The compiler, loaded on first use.
pub fn hiprtc() -> Result<&'static Compiler, GpuError> {
    static HIPRTC: OnceLock<Compiler> = OnceLock::new();
    if let Some(compiler) = HIPRTC.get() {
        return Ok(compiler);
    }
    // Until HIP 6 it was a part of the run time.
    let at = |names: &[&str]| Compiler::new(open_library(NAMES.library, names)?, &NAMES);
    let own = api().and_then(|api| at(&[api.name()]));
    let compiler = own.or_else(|_| at(&["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"]))?;
    Ok(HIPRTC.get_or_init(|| compiler))
}

/// The options for `arch`, such as `gfx942`, on a device whose constant clock has this rate.
pub fn options(arch: &str, clock_khz: Option<u32>) -> Vec<String> {
    let arch = format!("--offload-arch={arch}");
    let clock = clock_khz.map(|rate| format!("-DWV_HIP_CLOCK_KHZ={rate}"));
    let usual = ["-std=c++20", "-O2", "-gline-tables-only", "-Wno-pass-failed"];
    usual.map(str::to_owned).into_iter().chain([arch]).chain(clock).collect()
}

/// The code object of `image` for `arch`.
pub fn code(
    image: &Image,
    arch: &str,
    clock_khz: Option<u32>,
    cache: &Cache,
) -> Result<(Vec<u8>, Origin), GpuError> {
    let (options, more) = (options(arch, clock_khz), |_| Vec::new());
    Request { image, arch, options, more }.code(hiprtc(), cache)
}
