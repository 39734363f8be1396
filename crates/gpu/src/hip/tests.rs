//! The backend against AMD's own library, where it is installed; it needs no GPU to say that there is none.

use super::api::Api;
use super::compile::{code, options};
use crate::driver::{Cache, Origin};
use crate::{GpuError, Image};

/// Where Debian has it.
const REAL: &str = "libamdhip64.so.5";

#[test]
fn an_absent_run_time_is_an_error_that_names_the_file() {
    let refused = Api::load(Some("libwv-nowhere.so.7".to_owned())).err();
    let Some(GpuError::NotFound { file, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(file, "libwv-nowhere.so.7");
}

#[test]
#[ignore = "needs AMD's libamdhip64.so.5 (libamdhip64-5 of Debian)"]
fn amds_library_has_every_function_and_no_device() {
    let api = Api::load(Some(REAL.to_owned())).unwrap();
    let mut count = -1;
    // SAFETY: the pointer is to a live local.
    let counted = unsafe { api.hipGetDeviceCount(&mut count) };
    let code = counted.err().map(|error| error.to_string());
    assert_eq!(code.as_deref(), Some("hipGetDeviceCount failed: hipErrorNoDevice (100)"));
    assert!(api.version().unwrap() / 10_000_000 >= 5);
}
