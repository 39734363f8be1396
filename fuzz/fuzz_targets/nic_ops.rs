//! Any sequence of what posters and owners do to the software NIC.
#![no_main]

#[path = "../../crates/nic/tests/common/ops/mod.rs"]
mod ops;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ops::exercise(data);
});
