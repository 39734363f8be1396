//! Sums of 64-bit words over all ranks of a symmetric heap: each rank adds a part, and puts its
//! sums to all. Compared with sums that the host makes.
//!
//! ```text
//! shmem_allreduce --procs 3
//! shmem_allreduce --rank R --world-size N --master-addr HOST --master-port PORT   (or a launcher)
//! ```

mod common;
#[path = "../tests/dist/mod.rs"]
mod dist;

use anyhow::Result;
use clap::Parser;
use common::DEADLINE;
use dist::heap::{Exchange, HeapFlags, Part, ROOM, compare, pattern, read};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::kernels::shm_coll::ShmAllreduce;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, Sym, TEAM_BLOCK_BYTES};

/// Every rank gets the sums of all ranks' words
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    heap: HeapFlags,
}

fn main() -> ExitCode {
    common::main(|Flags { heap: flags }| {
        let Some(start) = flags.start("shmem_allreduce", 1 << 28, "")? else { return Ok(()) };
        start.run(World::join(&start.world), |rank| {
            let ranks = u64::from(rank.world_size());
            let bytes = 8 * part_words(flags.sizes.end, ranks) * ranks;
            let (gpu, nic) = (&rank.session.gpu, &rank.session.nic);
            let config = HeapConfig::new(2 * bytes + ROOM).timeout(DEADLINE);
            let mut heap = Heap::create(rank.world, gpu, Some(nic), &config)?;
            let (data, rows) = (heap.alloc(bytes)?, heap.alloc(bytes)?);
            let work = Allreduce { data, rows, team: heap.alloc(TEAM_BLOCK_BYTES)? };
            flags.rows(rank, heap, &work)
        })
    })
}

struct Allreduce {
    data: Sym<u8>,
    rows: Sym<u8>,
    team: Sym<u8>,
}

/// Words that each rank adds: a part of `size` bytes, rounded up.
fn part_words(size: u64, ranks: u64) -> u64 {
    size.div_ceil(8).div_ceil(ranks)
}

/// The sum over all ranks of each word.
fn sums(ranks: u32, round: u64, bytes: u64) -> Vec<u8> {
    let mut sums = vec![0u64; bytes as usize / 8];
    for rank in 0..ranks {
        for (sum, word) in sums.iter_mut().zip(pattern(rank, round, bytes).chunks_exact(8)) {
            *sum = sum.wrapping_add(word.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)));
        }
    }
    sums.into_iter().flat_map(u64::to_le_bytes).collect()
}

impl Exchange for Allreduce {
    fn verdict(&self, ranks: u32) -> String {
        format!("every rank has the sums of all {ranks}")
    }

    fn launch(&self, part: &mut Part<'_, '_>, round: u64, size: u64) -> Result<Duration> {
        let (world, heap) = (part.heap.world(), part.heap.device());
        let words = part_words(size, world.into());
        let bytes = 8 * words * u64::from(world);
        part.heap.write(&self.data, &pattern(part.heap.rank(), round, bytes))?;
        let (data, rows, team_block) = (self.data.offset(), self.rows.offset(), self.team.offset());
        let took = part.rank.run_on(&mut part.heap, part.dim, |status| {
            Box::new(ShmAllreduce { heap, data, rows, part: words, team_block, status })
        })?;
        let found = self.arrived(&part.heap, size)?;
        compare("sums", &found, &sums(world, round, bytes))?;
        Ok(took)
    }

    fn arrived(&self, heap: &Heap, size: u64) -> Result<Vec<u8>> {
        let ranks = u64::from(heap.world());
        read(heap, &self.data, 8 * part_words(size, ranks) * ranks)
    }
}
