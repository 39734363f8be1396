//! Each rank puts its own bytes to all ranks of a symmetric heap; a barrier ends it.
//!
//! ```text
//! shmem_allgather --procs 3
//! shmem_allgather --rank R --world-size N --master-addr HOST --master-port PORT   (or a launcher)
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
use warpverbs::kernels::shm_coll::ShmAllgather;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, Sym, TEAM_BLOCK_BYTES};

/// Every rank gets the bytes of all ranks
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    heap: HeapFlags,
}

fn main() -> ExitCode {
    common::main(|Flags { heap: flags }| {
        let Some(start) = flags.start("shmem_allgather", 1 << 28, "")? else { return Ok(()) };
        start.run(World::join(&start.world), |rank| {
            let (ranks, most) = (u64::from(rank.world_size()), flags.sizes.end);
            let (gpu, nic) = (&rank.session.gpu, &rank.session.nic);
            let config = HeapConfig::new((ranks + 1) * most + ROOM).timeout(DEADLINE);
            let mut heap = Heap::create(rank.world, gpu, Some(nic), &config)?;
            let (all, own) = (heap.alloc(ranks * most)?, heap.alloc(most)?);
            let work = Allgather { all, own, team: heap.alloc(TEAM_BLOCK_BYTES)? };
            flags.rows(rank, heap, &work)
        })
    })
}

struct Allgather {
    all: Sym<u8>,
    own: Sym<u8>,
    team: Sym<u8>,
}

impl Exchange for Allgather {
    fn verdict(&self, ranks: u32) -> String {
        format!("every rank has the bytes of all {ranks}")
    }

    fn launch(&self, part: &mut Part<'_, '_>, round: u64, size: u64) -> Result<Duration> {
        let heap = part.heap.device();
        part.heap.write(&self.own, &pattern(part.heap.rank(), round, size))?;
        let (all, own, team_block) = (self.all.offset(), self.own.offset(), self.team.offset());
        let took = part.rank.run_on(&mut part.heap, part.dim, |status| {
            Box::new(ShmAllgather { heap, all, own, bytes: size, team_block, status })
        })?;
        let found = self.arrived(&part.heap, size)?;
        for (rank, bytes) in (0..).zip(found.chunks(usize::try_from(size)?)) {
            compare(&format!("from rank {rank}"), bytes, &pattern(rank, round, size))?;
        }
        Ok(took)
    }

    fn arrived(&self, heap: &Heap, size: u64) -> Result<Vec<u8>> {
        read(heap, &self.all, u64::from(heap.world()) * size)
    }
}
