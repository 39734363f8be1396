//! The devices, and which one is current on a thread.

use crate::code::{Answer, Code, exports};
use crate::state::{LDS, MULTIPROCESSORS, THREADS, target};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Two, so that there is a peer. They share all memory.
const DEVICES: c_int = 2;
/// HIP 7.1.0.
const VERSION: c_int = 70_100_000;
/// Offset of `gcnArchName` in `hipDeviceProp_tR0600`, and in the structure of HIP 5.
const ARCH_NAME: (usize, usize) = (1160, 396);
/// Bytes of memory that a device reports. Allocations are not counted against it.
const MEMORY: usize = 16 << 30;

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

/// The device that is current on this thread.
pub(crate) fn current() -> c_int {
    CURRENT.get()
}

pub(crate) fn check(device: c_int) -> Answer {
    if (0..DEVICES).contains(&device) { Ok(()) } else { Err(Code::InvalidDevice) }
}

/// # Safety
/// `out` is null or has room for `len` bytes.
unsafe fn put_text(out: *mut c_char, len: c_int, text: &str) -> Answer {
    if out.is_null() || !usize::try_from(len).is_ok_and(|len| len > text.len()) {
        return Err(Code::InvalidValue);
    }
    // SAFETY: the caller's buffer, which is long enough.
    unsafe { out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    // SAFETY: likewise, for the NUL.
    unsafe { out.wrapping_add(text.len()).write(0) };
    Ok(())
}

exports! {
    fn hipInit(flags: c_uint) {
        if flags == 0 { Ok(()) } else { Err(Code::InvalidValue) }
    }

    fn hipDriverGetVersion() -> c_int {
        Ok(VERSION)
    }

    fn hipGetDeviceCount() -> c_int {
        Ok(DEVICES)
    }

    fn hipGetDevice() -> c_int {
        Ok(current())
    }

    fn hipSetDevice(device: c_int) {
        check(device).map(|()| CURRENT.set(device))
    }

    fn hipDeviceGetName(out: *mut c_char, len: c_int, device: c_int) {
        check(device)?;
        // SAFETY: the caller's buffer.
        unsafe { put_text(out, len, &format!("emulated {}", target())) }
    }

    fn hipDeviceGetPCIBusId(out: *mut c_char, len: c_int, device: c_int) {
        check(device)?;
        let place = if device == 0 { "0000:f0:00.0" } else { "0000:f1:00.0" };
        // SAFETY: the caller's buffer.
        unsafe { put_text(out, len, place) }
    }

    fn hipDeviceGetUuid(device: c_int) -> [u8; 16] {
        check(device)?;
        let mut name = *b"emulated00000000";
        name[15] += device as u8;
        Ok(name)
    }

    fn hipDeviceTotalMem(device: c_int) -> usize {
        check(device).map(|()| MEMORY)
    }

    fn hipDeviceGetAttribute(attribute: c_int, device: c_int) -> c_int {
        check(device)?;
        match attribute {
            // Threads of a multiprocessor.
            57 => Ok(THREADS as c_int),
            63 => Ok(MULTIPROCESSORS as c_int),
            // Shared memory of a block.
            74 => Ok(LDS as c_int),
            // Lanes of a warp.
            87 => Ok(64),
            // Whether streams wait for words, and write them.
            10013 => Ok(1),
            // kHz of the constant clock.
            10017 => Ok(100_000),
            _ => Err(Code::InvalidValue),
        }
    }

    fn hipGetDevicePropertiesR0600(out: *mut c_void, device: c_int) {
        // SAFETY: the caller's structure.
        unsafe { properties(out, device, ARCH_NAME.0) }
    }

    /// The structure is as it was before HIP 6.
    fn hipGetDeviceProperties(out: *mut c_void, device: c_int) {
        // SAFETY: the caller's structure.
        unsafe { properties(out, device, ARCH_NAME.1) }
    }

    fn hipDeviceCanAccessPeer(device: c_int, peer: c_int) -> c_int {
        check(device).and(check(peer)).map(|()| (device != peer).into())
    }

    fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        check(peer)?;
        if peer == current() || flags != 0 { Err(Code::InvalidDevice) } else { Ok(()) }
    }
}

/// # Safety
/// `properties` has room for the structure, of which `gcnArchName` alone is written, at this offset.
unsafe fn properties(properties: *mut c_void, device: c_int, offset: usize) -> Answer {
    check(device)?;
    if properties.is_null() {
        return Err(Code::InvalidValue);
    }
    // As ROCm has it, with features behind colons, on which nothing here depends.
    let name = format!("{}:sramecc+:xnack-", target());
    // SAFETY: the name has 256 bytes at this offset.
    unsafe { put_text(properties.wrapping_byte_add(offset).cast(), 256, &name) }
}
