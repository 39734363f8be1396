//! All ranks of a symmetric heap meet again and again; what each wrote before is there for all
//! behind the barrier. The size is the number of rounds.
//!
//! ```text
//! shmem_barrier --procs 3
//! shmem_barrier --rank R --world-size N --master-addr HOST --master-port PORT     (or a launcher)
//! ```

mod common;
#[path = "../tests/dist/mod.rs"]
mod dist;

use anyhow::{Result, ensure};
use clap::Parser;
use common::DEADLINE;
use dist::heap::{Exchange, HeapFlags, Part, ROOM, read};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::{KernelPtr, Place};
use warpverbs::kernels::shm_coll::ShmRounds;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, Sym, TEAM_BLOCK_BYTES};

/// Ranks meet in a symmetric heap
#[derive(Parser)]
// Where ranks share cores, a round takes milliseconds.
#[command(version, mut_arg("end", |end| end.default_value("512")))]
struct Flags {
    #[command(flatten)]
    heap: HeapFlags,
}

fn main() -> ExitCode {
    common::main(|Flags { heap: flags }| {
        let Some(start) = flags.start("shmem_barrier", 1 << 20, "")? else { return Ok(()) };
        start.run(World::join(&start.world), |rank| {
            let ranks = u64::from(rank.world_size());
            let (gpu, nic) = (&rank.session.gpu, &rank.session.nic);
            let config = HeapConfig::new(8 * ranks + ROOM).timeout(DEADLINE);
            let mut heap = Heap::create(rank.world, gpu, Some(nic), &config)?;
            let words = heap.alloc(8 * ranks)?;
            let work = Rounds { words, team: heap.alloc(TEAM_BLOCK_BYTES)? };
            flags.rows(rank, heap, &work)
        })
    })
}

struct Rounds {
    words: Sym<u8>,
    team: Sym<u8>,
}

impl Exchange for Rounds {
    fn verdict(&self, ranks: u32) -> String {
        format!("nobody of {ranks} left before everybody had come")
    }

    fn launch(&self, part: &mut Part<'_, '_>, _: u64, size: u64) -> Result<Duration> {
        let (gpu, heap) = (part.rank.session.gpu.clone(), part.heap.device());
        let wrong = gpu.alloc(8, Place::Device)?;
        let (words, team_block) = (self.words.offset(), self.team.offset());
        part.heap.write(&self.words, &vec![0; self.words.len() as usize])?;
        // Everybody's words are zero before anybody writes.
        part.rank.barrier("zero")?;
        let took = part.rank.run_on(&mut part.heap, part.dim, |status| {
            let (rounds, wrong) = (size as u32, KernelPtr::new(&wrong));
            Box::new(ShmRounds { heap, words, team_block, rounds, wrong, status })
        })?;
        let mut count = [0; 8];
        gpu.read(&wrong, 0, &mut count)?;
        let count = u64::from_le_bytes(count);
        ensure!(count == 0, "{count} words were not there behind the barrier");
        let found = self.arrived(&part.heap, size)?;
        ensure!(found.chunks(8).all(|word| word == size.to_le_bytes()), "{found:?}");
        Ok(took)
    }

    fn arrived(&self, heap: &Heap, _: u64) -> Result<Vec<u8>> {
        read(heap, &self.words, self.words.len())
    }
}
