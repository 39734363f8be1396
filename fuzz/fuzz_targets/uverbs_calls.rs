//! Random calls to the kernel's RDMA interface.
#![no_main]

#[path = "../../crates/uverbs/tests/it/common/mod.rs"]
#[allow(dead_code)]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    common::script::exercise(data);
});
