//! Flag round trips between a CPU thread and a kernel: what every other latency is measured by.

use crate::common::{Arg, Call};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpverbs_gpu::driver::DriverGpu;
use warpverbs_gpu::{Buffer, Dim, Gpu, GpuError, KernelPtr, Place};

const LIMIT: Duration = Duration::from_secs(3);

/// Plays `rounds` rounds with the `echo` kernel: `send` tells it a number, `receive` reads what it
/// answered. The time of each round; fewer than asked for if the kernel stopped answering.
pub(crate) fn play(
    gpu: &DriverGpu,
    (ping, pong): (&Buffer, &Buffer),
    rounds: u64,
    mut send: impl FnMut(u64),
    mut receive: impl FnMut() -> u64,
) -> Result<Vec<Duration>, GpuError> {
    let args = vec![
        Arg::Ptr(KernelPtr::new(ping)),
        Arg::Ptr(KernelPtr::new(pong)),
        Arg::U64(rounds),
        Arg::U64(LIMIT.as_nanos() as u64),
    ];
    let launch = Call { name: "echo", args }.launch(gpu, Dim::new(1, 1), LIMIT * 2)?;
    let begun = Instant::now();
    let mut times = Vec::with_capacity(rounds as usize);
    'rounds: for round in 1..=rounds {
        let sent = Instant::now();
        send(round);
        while receive() < round {
            if begun.elapsed() > LIMIT {
                break 'rounds;
            }
        }
        times.push(sent.elapsed());
    }
    if let Err(error) = launch.wait() {
        println!("echo kernel: {error}");
    }
    Ok(times)
}

pub(crate) fn word(buffer: &Buffer) -> &AtomicU64 {
    buffer.region().atomic_u64(0).expect("shared memory is host memory and aligned")
}

pub(crate) fn print(gpu: &DriverGpu) -> Result<(), GpuError> {
    const ROUNDS: u64 = 20_000;
    let ping = gpu.alloc(8, Place::Shared)?;
    let pong = gpu.alloc(8, Place::Shared)?;
    let send = |round| word(&ping).store(round, Ordering::Release);
    let receive = || word(&pong).load(Ordering::Acquire);
    let times = play(gpu, (&ping, &pong), ROUNDS, send, receive)?;
    let played = times.len();
    let (median, high) = crate::percentiles(times);
    println!("## Flag round trip CPU → GPU → CPU, both flags in pinned memory\n");
    println!("| rounds | p50 µs | p99 µs |\n|---|---|---|");
    println!("| {played} | {median} | {high} |\n");
    Ok(())
}
