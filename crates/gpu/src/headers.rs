//! The headers of the device library, which compilers at run time are given: once for all kernels.

include!(concat!(env!("OUT_DIR"), "/headers.rs"));

#[cfg(feature = "driver")]
const fn with_nul(text: &'static str) -> &'static core::ffi::CStr {
    match core::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a header has a NUL byte"),
    }
}
