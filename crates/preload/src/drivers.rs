//! libionic's registration with libibverbs.
//!
//! Of libionic's devices the kernel tells the driver by netlink, which is not imitated; then libibverbs compares
//! their PCI numbers. libionic names none, so its registration is handed on with those of our devices.

use crate::inside::inside;
use crate::settings::Settings;
use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::ptr::null;
use warpverbs_uverbs::Driver;

/// PCI numbers of our devices: vendor and part.
const PCI: (u16, u16) = (0x1dd8, 0x1002);
/// `VERBS_MATCH_PCI`.
const MATCH_PCI: u8 = 1;

/// `struct verbs_match_ent`.
#[repr(C)]
struct Match {
    driver_data: *const c_void,
    modalias: *const c_char,
    vendor: u16,
    device: u16,
    kind: u8,
}

/// `struct verbs_device_ops`, which is the same in all versions that have libionic.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceOps {
    name: *const c_char,
    min_abi_version: u32,
    max_abi_version: u32,
    matches: *const Match,
    static_providers: *const c_void,
    functions: [*const c_void; 5],
}

/// The operations that libibverbs is told of. They live as long as the process.
///
/// # Safety
/// `ops` is what a driver registers.
unsafe fn told(ops: *const DeviceOps) -> *const DeviceOps {
    // SAFETY: as the caller says; a driver's operations are never freed.
    let Some(own) = (unsafe { ops.as_ref() }) else { return ops };
    // SAFETY: a name that ends, as the caller says.
    let is_ionic = !own.name.is_null() && unsafe { CStr::from_ptr(own.name) } == c"ionic";
    if !is_ionic || !matches!(Settings::get().driver, Driver::Ionic { .. }) {
        return ops;
    }
    let (vendor, device) = PCI;
    let entry = |vendor, device, kind| Match {
        driver_data: null(),
        modalias: null(),
        vendor,
        device,
        kind,
    };
    let matches = Box::leak(Box::new([entry(vendor, device, MATCH_PCI), entry(0, 0, 0)]));
    Box::leak(Box::new(DeviceOps { matches: matches.as_ptr(), ..*own }))
}

/// Hands a registration on to the function of this name in libibverbs.
///
/// # Safety
/// As for that function.
unsafe fn register(name: &CStr, ops: *const DeviceOps) {
    let library = c"libibverbs.so.1".as_ptr();
    // It may be loaded for somebody else alone, where a look-up by order does not find it.
    // SAFETY: a name that ends.
    let library = unsafe { libc::dlopen(library, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return;
    }
    // SAFETY: a library that is loaded, and a name that ends.
    let real = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: null, or libibverbs' function of this name, which has this type.
    let real: Option<unsafe extern "C" fn(*const DeviceOps)> = unsafe { transmute(real) };
    // SAFETY: as the caller says.
    let ops = inside(|| unsafe { told(ops) }).unwrap_or(ops);
    if let Some(real) = real {
        // SAFETY: the caller's argument, or one that tells other devices.
        unsafe { real(ops) };
    }
    // SAFETY: the handle from above; whoever called has the library loaded.
    unsafe { libc::dlclose(library) };
}

/// Of rdma-core from v59 on.
///
/// # Safety
/// As for libibverbs' function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs_register_driver_59(ops: *const DeviceOps) {
    // SAFETY: the caller's argument.
    unsafe { register(c"verbs_register_driver_59", ops) };
}

/// Of rdma-core from v64 on.
///
/// # Safety
/// As for libibverbs' function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs_register_driver_64(ops: *const DeviceOps) {
    // SAFETY: the caller's argument.
    unsafe { register(c"verbs_register_driver_64", ops) };
}
