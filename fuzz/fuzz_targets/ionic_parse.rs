//! Any bytes through every parser of ionic's queue formats.
#![no_main]

#[path = "../../crates/ionic/tests/formats/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
