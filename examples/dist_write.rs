//! Several processes, on one machine or more, in each of which a kernel writes into the memory of all
//! over RoCEv2. A table of sizes; the bytes of every row are compared.
//!
//! ```text
//! dist_write --procs 2
//! dist_write --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::job::{self, Job};
use common::{MAX_BYTES, Session, compare, parse_size, poison, sample, within, words};
use serde_json::json;
use std::process::ExitCode;
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::dist::{IMAGE, Target, WriteAll};
use warpverbs::rendezvous::World;
use warpverbs::transport::{Access, RemoteRegion};

/// Kernels of several processes write into each other's memory
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Smallest message, as 8, 64K or 1M
    #[arg(short = 'b', long, default_value = "8", value_parser = parse_size)]
    begin: u64,
    /// Largest message; each is four times as large as the one before
    #[arg(short = 'e', long, default_value = "1M", value_parser = parse_size)]
    end: u64,
    /// WRITEs to each rank
    #[arg(short = 'n', long, default_value_t = 64)]
    iters: u32,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--begin", flags.begin, 1, MAX_BYTES)?;
        within("--end", flags.end, flags.begin, MAX_BYTES)?;
        within("--iters", flags.iters, 1, 1_000_000)?;
        let plan = format!("dist_write -b {} -e {} -n {}", flags.begin, flags.end, flags.iters);
        flags.job.run(&plan, |session, world| write(session, world, &flags))
    })
}

fn write(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let me = world.rank();
    let (gpu, ranks) = (&session.gpu, world.world_size());
    gpu.load(&IMAGE)?;

    // The message of this rank, and a place for that of each rank.
    let source = session.memory(gpu, flags.end as usize, Access::empty())?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let inbox = session.memory(gpu, ranks as usize * flags.end as usize, access)?;
    let theirs = world.exchange("inbox", &inbox.remote().to_bytes())?;
    let endpoints = job::connect(session, world, 0)?;
    let mut targets = Vec::new();
    for (rank, endpoint) in &endpoints {
        let theirs = RemoteRegion::from_bytes(&theirs[*rank as usize])?;
        let remote = theirs.slice(u64::from(me) * flags.end, flags.end)?.into();
        let (qp, local) = (endpoint.device_qp(), source.local().into());
        targets.push(Target { qp, local, remote });
    }
    let (count, targets) = (ranks - 1, KernelPtr::upload(&**gpu, &targets)?);

    let mut rows = Vec::new();
    if me == 0 {
        session.say("Index        Size      GB/s          µs      Mpps")?;
    }
    let sizes = std::iter::successors(Some(flags.begin), |size| size.checked_mul(4));
    for (row, size) in (0..).zip(sizes.take_while(|&size| size <= flags.end)) {
        // Other bytes in each row, so that none of an earlier one passes for those of this one.
        let message = |rank: u32| sample(row << 16 | u64::from(rank), size as usize);
        source.write(0, &message(me))?;
        for from in endpoints.iter().map(|(from, _)| *from) {
            inbox.write(u64::from(from) * flags.end, &poison(&message(from)))?;
        }
        world.barrier("prepared")?;

        // The kernel's report: its first bad status, the complement of its start, its end.
        let report = gpu.alloc(24, Place::Device)?;
        let (targets, bytes, iters) = (targets.clone(), u32::try_from(size)?, flags.iters);
        let told = KernelPtr::new(&report);
        let kernel = WriteAll { targets, count, bytes, iters, report: told };
        session.run(&kernel, Dim::new(count, 32))?;
        let [status, start, end] = words(gpu, &report)?;
        for (peer, endpoint) in &endpoints {
            let health = endpoint.health()?;
            ensure!(health.is_ok(), "work towards rank {peer} failed: {health}");
        }
        ensure!(status == 0, "the kernel ended with status {status:#x}");
        world.barrier("written")?;

        let mut found = vec![0; size as usize];
        for from in endpoints.iter().map(|(from, _)| *from) {
            inbox.read(u64::from(from) * flags.end, &mut found)?;
            compare(&message(from), &found)
                .with_context(|| format!("{size} bytes from rank {from}"))?;
        }
        world.barrier("compared")?;

        let (micros, writes) = ((end - !start) as f64 / 1e3, f64::from(flags.iters * count));
        let (gb, rate) = (writes * size as f64 / micros / 1e3, writes / micros);
        if me == 0 {
            session.say(&format!("{row:>5} {size:>11} {gb:>9.3} {micros:>11.1} {rate:>9.3}"))?;
        }
        rows.push(json!({"index": row, "size": size, "gb_per_s": gb, "us": micros, "mpps": rate}));
    }
    let sizes = rows.len();
    session.fact("rows", rows);
    Ok(format!("{sizes} sizes, every byte at {ranks} ranks as it was sent"))
}
