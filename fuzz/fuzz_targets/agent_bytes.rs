//! Any bytes, as metadata of an agent, as a list of blocks, and as what a peer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| warpverbs_agent::raw::any_bytes(data));
