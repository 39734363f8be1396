//! Any bytes, as a peer of the store and as what a launcher says.
#![no_main]

#[path = "../../crates/rendezvous/tests/common/robust.rs"]
mod robust;

libfuzzer_sys::fuzz_target!(|data: &[u8]| robust::store_message(data));
