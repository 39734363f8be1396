//! Any bytes at all, given to every parser of `warpverbs-wire`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/common/robust.rs"]
mod robust;

fuzz_target!(|data: &[u8]| robust::packet(data));
