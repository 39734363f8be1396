//! Any control data of a device-memory socket, and any use of its fragments and tokens.
#![no_main]

#[path = "../../crates/devmem/tests/it/common/mod.rs"]
#[allow(dead_code)]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    common::script::exercise(data);
});
