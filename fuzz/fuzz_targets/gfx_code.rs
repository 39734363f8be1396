//! Any bytes as a code object that is loaded and run, and as instructions.
#![no_main]

#[path = "../../crates/gfx/tests/it/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
