//! Any bytes as a script of posting to the software NIC.
#![no_main]

#[path = "../../crates/nic/tests/common/exercise.rs"]
mod exercise;
#[path = "../../crates/nic/tests/common/rig.rs"]
mod rig;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    exercise::exercise(data);
});
