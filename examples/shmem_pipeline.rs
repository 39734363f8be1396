//! A chain of ranks: each GPU transforms the items that the previous one puts into its memory, and
//! puts the results into the memory of the next. Several streams are in flight at once, each with a
//! block of every rank. The size is that of an item, rounded up to 8 bytes.
//!
//! ```text
//! shmem_pipeline --procs 3
//! shmem_pipeline --rank R --world-size N --master-addr HOST --master-port PORT     (or a launcher)
//! ```

mod common;
#[path = "../tests/dist/mod.rs"]
mod dist;

use anyhow::Result;
use clap::Parser;
use common::DEADLINE;
use dist::heap::{Exchange, HeapFlags, Part, ROOM};
use dist::pipeline::{ITEMS, Items, words};
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::kernels::shm_pipeline::ShmPipeline;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig};

/// Each GPU produces what the next one consumes
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    heap: HeapFlags,
    /// Streams of items, a block for each
    #[arg(long, default_value_t = 4)]
    streams: u32,
}

fn main() -> ExitCode {
    common::main(|Flags { heap: flags, streams }| {
        common::within("--streams", streams.into(), 1, 32)?;
        let more = format!(" --streams {streams}");
        let Some(start) = flags.start("shmem_pipeline", 1 << 24, &more)? else { return Ok(()) };
        start.run(World::join(&start.world), |rank| {
            let (most, gpu, nic) = (flags.sizes.end, &rank.session.gpu, &rank.session.nic);
            let config = HeapConfig::new(Items::heap_bytes(streams, most) + ROOM);
            let mut heap = Heap::create(rank.world, gpu, Some(nic), &config.timeout(DEADLINE))?;
            let items = Items::new(&mut heap, streams, most)?;
            flags.rows(rank, heap, &Pipeline { items, times: Cell::default() })
        })
    })
}

struct Pipeline {
    items: Items,
    /// Of all launches: one stream after the other, and all at once.
    times: Cell<[Duration; 2]>,
}

impl Pipeline {
    /// `blocks` streams from `first` on.
    fn streams(
        &self,
        part: &mut Part<'_, '_>,
        (first, blocks): (u64, u32),
        words: u64,
        before: u64,
    ) -> Result<Duration> {
        let Items { places, signals, streams } = &self.items;
        let (base, signals, streams) = (places.offset(), signals.offset(), (*streams).into());
        let (heap, dim) = (part.heap.device(), Dim::new(blocks, part.dim.threads()));
        part.rank.run_on(&mut part.heap, dim, |status| {
            Box::new(ShmPipeline {
                heap,
                base,
                signals,
                streams,
                first,
                words,
                items: ITEMS,
                before,
                status,
            })
        })
    }
}

impl Exchange for Pipeline {
    fn verdict(&self, ranks: u32) -> String {
        let [apart, together] = self.times.get().map(|time| time.as_secs_f64());
        let (streams, gain) = (self.items.streams, apart / together);
        let how = format!("at once {gain:.2} times as fast as one after the other");
        format!("every item of {streams} streams through {ranks} ranks; {how}")
    }

    fn operations(&self) -> u64 {
        u64::from(self.items.streams) * ITEMS
    }

    fn launch(&self, part: &mut Part<'_, '_>, round: u64, size: u64) -> Result<Duration> {
        let (words, before) = (words(size), 2 * ITEMS * (round - 1));
        let mut apart = Duration::ZERO;
        for stream in 0..self.items.streams.into() {
            apart += self.streams(part, (stream, 1), words, before)?;
            // The next stream begins when this one has come through.
            part.rank.barrier("stream")?;
        }
        self.items.check(&part.heap, words, before)?;
        part.rank.barrier("checked")?;
        let together = self.streams(part, (0, self.items.streams), words, before + ITEMS)?;
        self.items.check(&part.heap, words, before + ITEMS)?;
        let [apart, all] = [part.rank.slowest(apart)?, part.rank.slowest(together)?];
        let [a, b] = self.times.get();
        self.times.set([a + apart, b + all]);
        Ok(together)
    }

    fn arrived(&self, heap: &Heap, size: u64) -> Result<Vec<u8>> {
        self.items.arrived(heap, words(size))
    }
}
