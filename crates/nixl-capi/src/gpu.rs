//! The GPU whose memory the program's descriptors name.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use warpverbs_gpu::{Gpu, GpuChoice};

/// The GPU that the program uses in this thread, if it has loaded the driver of NVIDIA's.
pub(crate) fn current_gpu() -> Option<Arc<dyn Gpu>> {
    let ordinal = current_device()?;
    let opened = warpverbs_gpu::open(GpuChoice::Cuda(ordinal));
    opened.map_err(|error| tracing::warn!(target: "nixl", "GPU {ordinal}: {error}")).ok()
}

fn current_device() -> Option<u32> {
    // SAFETY: a name that ends with a zero byte. Nothing is loaded; a driver that is there stays.
    let driver =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if driver.is_null() {
        return None;
    }
    let function = symbol(driver, c"cuCtxGetDevice")?;
    // SAFETY: the driver's function of this name has this type.
    let get = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(function)
    };
    let mut device = -1;
    // SAFETY: a place for one device.
    let result = unsafe { get(&mut device) };
    // Without a context, or without the driver's initialisation, the program uses no GPU.
    (result == 0).then(|| u32::try_from(device).ok()).flatten()
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a library that is open, and a name that ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
