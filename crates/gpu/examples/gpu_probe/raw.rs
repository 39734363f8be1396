//! Calls of the driver by themselves.

use cudarc::driver::sys;
use warpverbs_gpu::GpuError;

/// One call of the driver, written once with its obligations.
macro_rules! raw {
    ($call:ident($($arg:expr),*)) => {{
        // SAFETY: the probe passes handles and memory that are live, pointers to live locals, and
        // frees only what it made and nothing uses; where the call wants a context, one is current.
        let result = unsafe { cudarc::driver::sys::$call($($arg),*) };
        $crate::raw::check(stringify!($call), result)
    }};
}
pub(crate) use raw;

pub(crate) fn check(call: &'static str, result: sys::CUresult) -> Result<(), GpuError> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(GpuError::Driver { call, code: code as i64, name: format!("{code:?}") }),
    }
}

/// The handle of device `ordinal`.
pub(crate) fn device(ordinal: u32) -> Result<sys::CUdevice, GpuError> {
    let mut device = 0;
    raw!(cuDeviceGet(&mut device, ordinal as i32))?;
    Ok(device)
}

/// Makes the context of device `ordinal` current on this thread, for good.
pub(crate) fn enter(ordinal: u32) -> Result<(), GpuError> {
    let mut context = std::ptr::null_mut();
    raw!(cuDevicePrimaryCtxRetain(&mut context, device(ordinal)?))?;
    raw!(cuCtxSetCurrent(context))
}
