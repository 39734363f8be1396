//! Several processes, on one machine or more, whose kernels all count one number of rank 0 up, with
//! fetch-and-add and then with compare-and-swap, over RoCEv2. Every value must come back to exactly
//! one thread of one rank, and the number must end as the count of all.
//!
//! ```text
//! dist_atomic --procs 2
//! dist_atomic --rank R --world-size N --master-addr HOST --master-port PORT    (or under a launcher)
//! ```

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::job::{self, Job};
use common::{DEADLINE, Session, within, words};
use std::process::ExitCode;
use warpverbs::gpu::{Dim, KernelPtr, Local, Place};
use warpverbs::kernels::dist::{AddUp, IMAGE, SwapUp, Target};
use warpverbs::rendezvous::World;
use warpverbs::transport::{Access, EndpointConfig, RemoteRegion};

/// Kernels of several processes count one number up
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Operations of each thread
    #[arg(short = 'n', long, default_value_t = 64)]
    iters: u32,
    /// Threads of each rank
    #[arg(short = 't', long, default_value_t = 32)]
    threads: u32,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--threads", flags.threads, 1, 1024)?;
        within("--iters", flags.iters, 1, (1 << 20) / u64::from(flags.threads))?;
        let plan = format!("dist_atomic -n {} -t {}", flags.iters, flags.threads);
        flags.job.run(&plan, |session, world| count_up(session, world, &flags))
    })
}

fn count_up(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let ranks = u64::from(world.world_size());
    let (gpu, iters) = (&session.gpu, flags.iters);
    gpu.load(&IMAGE)?;

    // Every rank registers a number, and all learn of them; only that of rank 0 is counted up. The NIC
    // counts by instructions of the CPU, so the number is where host and GPU share memory.
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let number = session.nic.register(gpu.alloc(8, Place::Shared)?, access)?;
    let numbers = world.exchange("number", &number.remote().to_bytes())?;
    let remote = RemoteRegion::from_bytes(&numbers[0])?.into();
    // Rank 0 takes part through a pair of its own.
    let (own, _end) = session.nic.pair(&EndpointConfig::for_gpu(gpu).timeout(DEADLINE))?;
    let endpoints = job::connect(session, world, 0)?;
    let endpoint = if world.rank() == 0 { &own } else { &endpoints[0].1 };
    let target = Target { qp: endpoint.device_qp(), local: Local::default(), remote };
    let targets = KernelPtr::upload(&**gpu, &[target])?;
    let values = u64::from(flags.threads) * u64::from(iters);
    let old = gpu.alloc(8 * values as usize, Place::Device)?;

    let mut tries = 0;
    for swap in [false, true] {
        number.write(0, &[0; 8])?;
        world.barrier("at zero")?;
        // The kernel's report: its first bad status, its start and end, and how often it tried.
        let told = gpu.alloc(32, Place::Device)?;
        let (targets, count, found) = (targets.clone(), 1, KernelPtr::new(&old));
        let (report, dim) = (KernelPtr::new(&told), Dim::new(1, flags.threads));
        match swap {
            false => session.run(&AddUp { targets, count, iters, found, report }, dim)?,
            true => session.run(&SwapUp { targets, count, iters, found, report }, dim)?,
        }
        let health = endpoint.health()?;
        ensure!(health.is_ok(), "work towards rank 0 failed: {health}");
        let [status, _, _, tried] = words(gpu, &told)?;
        ensure!(status == 0, "the kernel ended with status {status:#x}");
        tries = tried;

        // All ranks see all values that came back: each from 0 on, once.
        let mut came = vec![0; 8 * values as usize];
        gpu.read(&old, 0, &mut came)?;
        let came = world.exchange("values", &came)?.concat();
        let mut came: Vec<_> = came.as_chunks().0.iter().map(|v| u64::from_le_bytes(*v)).collect();
        came.sort_unstable();
        let wrong = (0..).zip(&came).find(|(expected, value)| expected != *value);
        ensure!(wrong.is_none(), "(expected, came back): {wrong:?} is the first that is wrong");
        if world.rank() == 0 {
            let [last] = words(gpu, number.buffer())?;
            ensure!(
                last == ranks * values,
                "the number ended as {last}, expected {}",
                ranks * values
            );
        }
        world.barrier("counted")?;
    }
    session.facts([("values", ranks * values), ("compare_and_swaps", tries)]);
    let what = format!("0 to {} came back once each, twice", ranks * values - 1);
    Ok(format!("{what}; {tries} compare-and-swaps of rank 0 for its {values}"))
}
