//! Sums of 64-bit words over all ranks of a symmetric heap: each rank adds a part, and puts its
//! sums to all. Compared with sums that the host makes.
//!
//! ```text
//! shmem_allreduce --procs 3
//! shmem_allreduce --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;

use anyhow::{Context as _, Result};
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, Session, compare, parse_size, sample, within};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::kernels::shm_coll::ShmAllreduce;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, TEAM_BLOCK_BYTES};

/// Every rank gets the sums of all ranks' words
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Bytes of the words, as 8, 64K or 1M; rounded up to a word for each rank
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
        let plan = format!("shmem_allreduce -b {} -n {}", flags.bytes, flags.rounds);
        flags.job.run(&plan, |session, world| reduce(session, world, &flags))
    })
}

/// The sum of each word over all ranks, as the host makes it.
fn sums(parts: impl Iterator<Item = Vec<u8>>, words: u64) -> Vec<u8> {
    let mut sums = vec![0u64; words as usize];
    for part in parts {
        for (sum, word) in sums.iter_mut().zip(part.as_chunks().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn reduce(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let (gpu, nic, ranks) = (&session.gpu, &session.nic, world.world_size());
    // Each rank adds a part of the words.
    let part = flags.bytes.div_ceil(8).div_ceil(u64::from(ranks));
    let words = part * u64::from(ranks);
    let config = HeapConfig::new(2 * 8 * words + (1 << 16)).timeout(DEADLINE);
    let mut heap = Heap::create(world, gpu, Some(nic), &config)?;
    if heap.rank() == 0 {
        session.say(&heap.report().to_string())?;
    }
    let (data, rows) = (heap.alloc::<u64>(words)?, heap.alloc::<u64>(words)?);
    // Zero on all ranks before any of them uses it.
    let team = heap.alloc_zeroed::<u8>(world, TEAM_BLOCK_BYTES)?;

    let of = |rank: u32, round: u64| sample(round << 8 | u64::from(rank), 8 * words as usize);
    let (mut found, mut time) = (vec![0; 8 * words as usize], Duration::ZERO);
    for round in 1..=flags.rounds {
        heap.write(&data, &of(heap.rank(), round))?;
        let (data_at, rows, team_block) = (data.offset(), rows.offset(), team.offset());
        time += heap.run(world, Dim::new(1, 128), 2 * DEADLINE, |heap, status| ShmAllreduce {
            heap,
            data: data_at,
            rows,
            part,
            team_block,
            status,
        })?;
        heap.read(&data, &mut found)?;
        let expected = sums((0..ranks).map(|rank| of(rank, round)), words);
        compare(&expected, &found).with_context(|| format!("sums of round {round}"))?;
        // Nobody writes what another has not yet compared.
        world.barrier("compared")?;
    }
    session.facts([("words", words), ("rounds", flags.rounds)]);
    let each = time / flags.rounds as u32;
    Ok(format!("every rank has the sums of {words} words of all {ranks}, in {each:.1?}"))
}
