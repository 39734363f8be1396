//! Any sequence of NIXL's calls on two agents, beside a model.
#![no_main]

#[path = "../../crates/nixl/tests/it/calls/mod.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    calls::exercise(data);
});
