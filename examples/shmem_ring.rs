//! Each rank puts to the next one in a symmetric heap, signals, and waits for what the last one puts.
//!
//! ```text
//! shmem_ring --procs 3
//! shmem_ring --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;

use anyhow::{Context as _, Result};
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, MAX_BYTES, Session, compare, parse_size, sample, within};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::kernels::shm_coll::ShmRing;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, Signal};

/// Ranks put round a ring in a symmetric heap
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Bytes of a message, as 8, 64K or 1M
    #[arg(short = 'b', long, default_value = "1M", value_parser = parse_size)]
    bytes: u64,
    /// Messages, one after the other
    #[arg(short = 'n', long, default_value_t = 16)]
    rounds: u64,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--bytes", flags.bytes, 1, MAX_BYTES)?;
        within("--rounds", flags.rounds, 1, 1_000_000)?;
        let plan = format!("shmem_ring -b {} -n {}", flags.bytes, flags.rounds);
        flags.job.run(&plan, |session, world| ring(session, world, &flags))
    })
}

fn ring(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let (gpu, nic, bytes) = (&session.gpu, &session.nic, flags.bytes);
    let config = HeapConfig::new(2 * bytes + (1 << 16)).timeout(DEADLINE);
    let mut heap = Heap::create(world, gpu, Some(nic), &config)?;
    if heap.rank() == 0 {
        session.say(&heap.report().to_string())?;
    }
    let (to, from) = (heap.alloc::<u8>(bytes)?, heap.alloc::<u8>(bytes)?);
    let signal = heap.alloc_zeroed::<Signal>(world, 1)?;

    let (me, ranks) = (heap.rank(), heap.world());
    let last = (me + ranks - 1) % ranks;
    let message = |rank: u32, round: u64| sample(round << 8 | u64::from(rank), bytes as usize);
    let (mut found, mut time) = (vec![0; bytes as usize], Duration::ZERO);
    for round in 1..=flags.rounds {
        heap.write(&from, &message(me, round))?;
        let (to_at, from, signal) = (to.offset(), from.offset(), signal.offset());
        time += heap.run(world, Dim::new(1, 128), 2 * DEADLINE, |heap, status| ShmRing {
            heap,
            to: to_at,
            from,
            bytes,
            signal,
            round,
            status,
        })?;
        heap.read(&to, &mut found)?;
        compare(&message(last, round), &found)
            .with_context(|| format!("round {round}, from rank {last}"))?;
        // Nobody writes what another has not yet compared.
        world.barrier("compared")?;
    }
    session.facts([("bytes", bytes), ("rounds", flags.rounds)]);
    let each = time / flags.rounds as u32;
    Ok(format!("{bytes} bytes at each of {ranks} ranks as its neighbour put them, in {each:.1?}"))
}
