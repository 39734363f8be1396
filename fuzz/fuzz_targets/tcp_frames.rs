//! A peer that sends any frames to the transport of device-memory TCP.
#![no_main]

#[path = "../../crates/tcp/tests/it/peer.rs"]
mod peer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| peer::frames(data));
