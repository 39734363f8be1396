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
use clap::Args;
use dist::heap::{Exchange, Part};
use dist::pipeline::{ITEMS, Items, words};
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::kernels::shm_pipeline::ShmPipeline;
use warpverbs::shmem::Heap;

#[derive(Args)]
struct Streams {
    /// Streams of items, a block for each
    #[arg(long, default_value_t = 4)]
    streams: u32,
}

fn main() -> ExitCode {
    dist::heap::main::<Pipeline>()
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
        let heap = part.heap.device();
        let dim = Dim::new(blocks, part.dim.threads());
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
    const NAME: &'static str = "shmem_pipeline";
    const ABOUT: &'static str = "Each GPU produces what the next one consumes";
    const MOST: u64 = 1 << 24;
    type Flags = Streams;

    fn plan(flags: &Streams) -> Result<String> {
        common::within("--streams", flags.streams.into(), 1, 32)?;
        Ok(format!(" --streams {}", flags.streams))
    }

    fn heap_bytes(flags: &Streams, _: u64, most: u64) -> u64 {
        Items::heap_bytes(flags.streams, most)
    }

    fn new(flags: &Streams, heap: &mut Heap, most: u64) -> Result<Self> {
        Ok(Self { items: Items::new(heap, flags.streams, most)?, times: Cell::default() })
    }

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
