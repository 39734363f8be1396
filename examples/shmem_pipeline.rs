//! A chain of ranks: each GPU transforms the items that the previous one puts into its memory, and
//! puts the results into the memory of the next. Several streams of items are in flight at once,
//! each with a block of every rank; the last line compares that with one stream after the other.
//! The size is that of an item, rounded up to 8 bytes.
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
use dist::pipeline::{ITEMS, check, results, words};
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::kernels::shm_pipeline::ShmPipeline;
use warpverbs::shmem::{Heap, Signal, Sym};

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
    places: Sym<u8>,
    signals: Sym<Signal>,
    streams: u32,
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
        let (base, signals) = (self.places.offset(), self.signals.offset());
        let (heap, streams) = (part.heap.device(), self.streams.into());
        let dim = Dim::new(blocks, part.dim.threads());
        part.rank.run_on(&mut part.heap, dim, |status| {
            let items = ITEMS;
            Box::new(ShmPipeline {
                heap,
                base,
                signals,
                streams,
                first,
                words,
                items,
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
        u64::from(flags.streams) * ((4 + ITEMS) * 8 * words(most) + 32)
    }

    fn new(flags: &Streams, heap: &mut Heap, most: u64) -> Result<Self> {
        let (streams, times) = (flags.streams, Cell::default());
        let each = (4 + ITEMS) * 8 * words(most);
        let places = heap.alloc(u64::from(streams) * each)?;
        Ok(Self { places, signals: heap.alloc(2 * u64::from(streams))?, streams, times })
    }

    fn verdict(&self, ranks: u32) -> String {
        let [apart, together] = self.times.get().map(|time| time.as_secs_f64());
        let (streams, gain) = (self.streams, apart / together);
        format!(
            "every item of {streams} streams through {ranks} ranks; at once {gain:.2} times as \
             fast as one after the other"
        )
    }

    fn operations(&self) -> u64 {
        u64::from(self.streams) * ITEMS
    }

    fn launch(&self, part: &mut Part<'_, '_>, round: u64, size: u64) -> Result<Duration> {
        let (words, before) = (words(size), 2 * ITEMS * (round - 1));
        let mut apart = Duration::ZERO;
        for stream in 0..self.streams.into() {
            apart += self.streams(part, (stream, 1), words, before)?;
            // The next stream begins when this one has come through.
            part.rank.barrier("stream")?;
        }
        check(&part.heap, &self.places, self.streams, words, before)?;
        part.rank.barrier("checked")?;
        let together = self.streams(part, (0, self.streams), words, before + ITEMS)?;
        check(&part.heap, &self.places, self.streams, words, before + ITEMS)?;
        let [apart, all] = [part.rank.slowest(apart)?, part.rank.slowest(together)?];
        let [a, b] = self.times.get();
        self.times.set([a + apart, b + all]);
        Ok(together)
    }

    fn arrived(&self, heap: &Heap, size: u64) -> Result<Vec<u8>> {
        let results = (0..self.streams.into()).map(|s| results(heap, &self.places, s, words(size)));
        Ok(results.collect::<Result<Vec<_>>>()?.concat())
    }
}
