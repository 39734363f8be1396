//! Tests two NICs against each other: see [`warpverbs_bench::interop`].
#![forbid(unsafe_code)]

use clap::Parser as _;
use std::process::ExitCode;
use warpverbs_bench::interop::{Flags, run};

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
