//! Any bytes through every parser of bnxt_re's queue formats.
#![no_main]

#[path = "../../crates/bnxt/tests/formats/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
