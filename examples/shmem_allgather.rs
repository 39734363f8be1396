//! Each rank puts its own bytes to all ranks of a symmetric heap; a barrier ends it.
//!
//! ```text
//! shmem_allgather --procs 3
//! shmem_allgather --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;

use anyhow::{Context as _, Result};
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, Session, compare, parse_size, sample, within};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::kernels::shm_coll::ShmAllgather;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, TEAM_BLOCK_BYTES};

/// Every rank gets the bytes of all ranks
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Bytes of each rank, as 8, 64K or 1M
    #[arg(short = 'b', long, default_value = "1M", value_parser = parse_size)]
    bytes: u64,
    /// Launches, one after the other
    #[arg(short = 'n', long, default_value_t = 4)]
    rounds: u64,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--bytes", flags.bytes, 1, 1 << 28)?;
        within("--rounds", flags.rounds, 1, 1_000_000)?;
        let plan = format!("shmem_allgather -b {} -n {}", flags.bytes, flags.rounds);
        flags.job.run(&plan, |session, world| gather(session, world, &flags))
    })
}

fn gather(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let (gpu, nic, bytes) = (&session.gpu, &session.nic, flags.bytes);
    let ranks = world.world_size();
    let config = HeapConfig::new((u64::from(ranks) + 1) * bytes + (1 << 16)).timeout(DEADLINE);
    let mut heap = Heap::create(world, gpu, Some(nic), &config)?;
    if heap.rank() == 0 {
        session.say(&heap.report().to_string())?;
    }
    let (all, own) = (heap.alloc::<u8>(u64::from(ranks) * bytes)?, heap.alloc::<u8>(bytes)?);
    // Zero on all ranks before any of them uses it.
    let team = heap.alloc_zeroed::<u8>(world, TEAM_BLOCK_BYTES)?;

    let part = |rank: u32, round: u64| sample(round << 8 | u64::from(rank), bytes as usize);
    let (mut found, mut time) = (vec![0; all.len() as usize], Duration::ZERO);
    for round in 1..=flags.rounds {
        heap.write(&own, &part(heap.rank(), round))?;
        let (all_at, own, team_block) = (all.offset(), own.offset(), team.offset());
        time += heap.run(world, Dim::new(1, 128), 2 * DEADLINE, |heap, status| ShmAllgather {
            heap,
            all: all_at,
            own,
            bytes,
            team_block,
            status,
        })?;
        heap.read(&all, &mut found)?;
        for (from, found) in (0..).zip(found.chunks(bytes as usize)) {
            compare(&part(from, round), found)
                .with_context(|| format!("round {round}, from rank {from}"))?;
        }
        // Nobody writes what another has not yet compared.
        world.barrier("compared")?;
    }
    session.facts([("bytes", bytes), ("rounds", flags.rounds)]);
    let each = time / flags.rounds as u32;
    Ok(format!("every rank has {bytes} bytes of each of {ranks}, in {each:.1?}"))
}
