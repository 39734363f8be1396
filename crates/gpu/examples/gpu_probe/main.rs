//! Prints what a machine's NVIDIA GPU and driver do where their documentation leaves room:
//! which copies and calls go on while a kernel fills the device, what small copies cost, and whether
//! the CPU can map device memory. Markdown, for `docs/`.
//!
//! `cargo run --release -p warpverbs-gpu --example gpu_probe [ORDINAL]`
//!
//! Nothing here can hang: spinning kernels end by themselves, and every call that may block has a
//! thread of its own and a limit.

mod attributes;
mod blocking;
mod copies;
mod raw;
mod roundtrip;
mod window;

#[path = "../../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::driver::{Cache, DriverGpu, OpenOptions};
use warpverbs_gpu::{Gpu, GpuChoice, GpuError, open_with};

/// How long a spinning kernel holds the device if nobody stops it.
const SPIN: Duration = Duration::from_secs(3);
/// Blocks that have not started by then have no room.
const STARTS: Duration = Duration::from_secs(1);
/// When something that should take microseconds is taken to wait for the kernel.
const BLOCKED: Duration = Duration::from_millis(1500);

fn main() {
    let ordinal = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    if let Err(error) = probe(ordinal) {
        eprintln!("cuda:{ordinal}: {error}");
        std::process::exit(1);
    }
}

fn probe(ordinal: u32) -> Result<(), GpuError> {
    let gpu = Arc::new(common::open(ordinal)?);
    attributes::print(&gpu)?;
    roundtrip::print(&gpu)?;
    copies::print_latencies(&gpu)?;
    copies::print_progress(&gpu)?;
    copies::print_room(&gpu)?;
    copies::print_between(&gpu)?;
    copies::print_progress_beside_many(&gpu)?;
    blocking::print(&gpu)?;
    window::print(&gpu)
}

/// Opens the device anew.
fn reopened(gpu: &DriverGpu) -> Result<DriverGpu, GpuError> {
    let choice = GpuChoice::Cuda(gpu.info().ordinal);
    open_with(choice, OpenOptions { cache: Cache::Off, copy: None })
}

/// Microseconds, for people.
fn micros(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e6)
}

/// The median and the 99th percentile, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> (String, String) {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    (micros(at(50)), micros(at(99)))
}
