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
use clap::Parser;
use common::DEADLINE;
use dist::heap::{Exchange, HeapFlags, Part, ROOM, compare, pattern, read};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::kernels::shm_coll::ShmRing;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, Signal, Sym};

/// Ranks put round a ring in a symmetric heap
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    heap: HeapFlags,
}

fn main() -> ExitCode {
    common::main(|Flags { heap: flags }| {
        let Some(start) = flags.start("shmem_ring", 1 << 30, "")? else { return Ok(()) };
        start.run(World::join(&start.world), |rank| {
            let (most, gpu, nic) = (flags.sizes.end, &rank.session.gpu, &rank.session.nic);
            let config = HeapConfig::new(2 * most + ROOM).timeout(DEADLINE);
            let mut heap = Heap::create(rank.world, gpu, Some(nic), &config)?;
            let (to, from, signal) = (heap.alloc(most)?, heap.alloc(most)?, heap.alloc(1)?);
            let work = Ring { to, from, signal };
            flags.rows(rank, heap, &work)
        })
    })
}

struct Ring {
    to: Sym<u8>,
    from: Sym<u8>,
    signal: Sym<Signal>,
}

impl Exchange for Ring {
    fn verdict(&self, ranks: u32) -> String {
        format!("every byte at {ranks} ranks as its neighbour put it")
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
