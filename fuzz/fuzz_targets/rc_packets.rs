//! A peer that sends any headers to a connection, and an owner who does anything with it.
#![no_main]

#[path = "../../crates/rc/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| common::peer::packets(data));
