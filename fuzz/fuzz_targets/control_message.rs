//! Any bytes, as the peer of a control connection.
#![no_main]

#[path = "../../crates/meet/tests/common/robust.rs"]
mod robust;

libfuzzer_sys::fuzz_target!(|data: &[u8]| robust::messages(data));
