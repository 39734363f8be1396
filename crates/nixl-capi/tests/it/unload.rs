//! Unloading the library while it has threads.

use crate::bed::{at, path, text};
use libloading::Library;
use std::ffi::c_int;
use std::fs;
use std::process::Command;

const UNLOADS: &str = "WARPVERBS_TEST_UNLOADS";

/// Does nothing unless the test below has started this program for it: the other tests keep the library.
#[test]
fn unloads() {
    if std::env::var_os(UNLOADS).is_none() {
        return;
    }
    // SAFETY: this project's library, whose constructors are those of Rust.
    let library = unsafe { Library::new(path()) }.unwrap();
    type Create = unsafe extern "C" fn(u64, u64) -> c_int;
    // SAFETY: the function takes two pointers.
    let create = unsafe { library.get::<Create>("nixl_capi_create_agent") }.unwrap();
    let mut agent = 0_u64;
    // SAFETY: a string and a place, which are there.
    assert_eq!(unsafe { create(text(c"unloads"), at(&mut agent)) }, 0);
    library.close().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("libnixl_capi.so"), "its threads have no code any more");
}

#[test]
fn a_library_that_is_unloaded_stays() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let program = program.args(["--exact", "unload::unloads"]).env(UNLOADS, "1");
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
