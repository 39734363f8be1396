//! Any bytes through every parser of the queue formats.
#![no_main]

#[path = "../../crates/mlx5/tests/formats/exercise.rs"]
mod exercise;
#[path = "../../crates/mlx5/tests/formats/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
