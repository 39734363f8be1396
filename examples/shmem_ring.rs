//! Each rank puts to its neighbour in a symmetric heap, signals, and waits for its other neighbour.
//! The same kernel whether a neighbour's memory is mapped or reached by RDMA.
//!
//! ```text
//! shmem_ring --procs 3
//! shmem_ring --rank R --world-size N --master-addr HOST --master-port PORT     (or a launcher)
//! ```

mod common;
#[path = "../tests/dist/mod.rs"]
mod dist;

use anyhow::Result;
use dist::heap::{Exchange, NoFlags, Part, compare, pattern, read};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::kernels::shm_coll::ShmRing;
use warpverbs::shmem::{Heap, Signal, Sym};

fn main() -> ExitCode {
    dist::heap::main::<Ring>()
}

struct Ring {
    to: Sym<u8>,
    from: Sym<u8>,
    signal: Sym<Signal>,
}

impl Exchange for Ring {
    const NAME: &'static str = "shmem_ring";
    const ABOUT: &'static str = "Ranks put round a ring in a symmetric heap";
    const MOST: u64 = 1 << 30;
    type Flags = NoFlags;

    fn verdict(&self, ranks: u32) -> String {
        format!("every byte at {ranks} ranks as its neighbour put it")
    }

    fn heap_bytes(_: &NoFlags, _: u64, most: u64) -> u64 {
        2 * most
    }

    fn new(_: &NoFlags, heap: &mut Heap, most: u64) -> Result<Self> {
        Ok(Self { to: heap.alloc(most)?, from: heap.alloc(most)?, signal: heap.alloc(1)? })
    }

    fn launch(&self, part: &mut Part<'_, '_>, round: u64, size: u64) -> Result<Duration> {
        let (me, world, heap) = (part.heap.rank(), part.heap.world(), part.heap.device());
        part.heap.write(&self.from, &pattern(me, round, size))?;
        let (to, from, signal) = (self.to.offset(), self.from.offset(), self.signal.offset());
        let took = part.rank.run_on(&mut part.heap, part.dim, |status| {
            Box::new(ShmRing { heap, to, from, bytes: size, signal, round, status })
        })?;
        let last = (me + world - 1) % world;
        let found = read(&part.heap, &self.to, size)?;
        compare(&format!("from rank {last}"), &found, &pattern(last, round, size))?;
        Ok(took)
    }

    fn arrived(&self, heap: &Heap, size: u64) -> Result<Vec<u8>> {
        read(heap, &self.to, size)
    }
}
