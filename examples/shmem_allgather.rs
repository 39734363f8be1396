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
use dist::heap::{Exchange, NoFlags, Part, compare, pattern, read};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::kernels::shm_coll::ShmAllgather;
use warpverbs::shmem::{Heap, Sym, TEAM_BLOCK_BYTES};

fn main() -> ExitCode {
    dist::heap::main::<Allgather>()
}

struct Allgather {
    all: Sym<u8>,
    own: Sym<u8>,
    team: Sym<u8>,
}

impl Exchange for Allgather {
    const NAME: &'static str = "shmem_allgather";
    const ABOUT: &'static str = "Every rank gets the bytes of all ranks";
    const MOST: u64 = 1 << 28;
    type Flags = NoFlags;

    fn verdict(&self, ranks: u32) -> String {
        format!("every rank has the bytes of all {ranks}")
    }

    fn heap_bytes(_: &NoFlags, ranks: u64, most: u64) -> u64 {
        (ranks + 1) * most
    }

    fn new(_: &NoFlags, heap: &mut Heap, most: u64) -> Result<Self> {
        let all = heap.alloc(u64::from(heap.world()) * most)?;
        Ok(Self { all, own: heap.alloc(most)?, team: heap.alloc(TEAM_BLOCK_BYTES)? })
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
