//! A chain of ranks: each GPU transforms the items that the previous one puts into its memory, and
//! puts the results into the memory of the next. Several streams are in flight at once, each with a
//! block of every rank.
//!
//! ```text
//! shmem_pipeline --procs 3
//! shmem_pipeline --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;

use anyhow::{Context as _, Result};
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, Session, compare, parse_size, within};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::kernels::shm_pipeline::ShmPipeline;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, Signal};

/// Each GPU produces what the next one consumes
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Bytes of an item, as 8, 64K or 1M; rounded up to words
    #[arg(short = 'b', long, default_value = "64K", value_parser = parse_size)]
    bytes: u64,
    /// Streams of items, a block for each
    #[arg(long, default_value_t = 4)]
    streams: u32,
}

/// Items of each stream in a launch.
const ITEMS: u64 = 8;

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--bytes", flags.bytes, 1, 1 << 24)?;
        within("--streams", flags.streams, 1, 32)?;
        let plan = format!("shmem_pipeline -b {} --streams {}", flags.bytes, flags.streams);
        flags.job.run(&plan, |session, world| pipeline(session, world, &flags))
    })
}

/// An item as the last of `ranks` makes it: each rank changes every word.
fn item(stream: u64, item: u64, words: u64, ranks: u32) -> Vec<u8> {
    let word = |i: u64| {
        let first = (stream << 48 ^ item << 32 ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..u64::from(ranks)).fold(first, |word, rank| {
            (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(rank)
        })
    };
    (0..words).flat_map(|i| word(i).to_le_bytes()).collect()
}

fn pipeline(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let (gpu, nic) = (&session.gpu, &session.nic);
    let (words, streams) = (flags.bytes.div_ceil(8), u64::from(flags.streams));
    // A stream's places: two items that come, two that go, and the results of the last rank.
    let each = (4 + ITEMS) * words;
    let config = HeapConfig::new(streams * 8 * each + (1 << 16)).timeout(DEADLINE);
    let mut heap = Heap::create(world, gpu, Some(nic), &config)?;
    let (me, ranks) = (heap.rank(), heap.world());
    if me == 0 {
        session.say(&heap.report().to_string())?;
    }
    let places = heap.alloc::<u64>(streams * each)?;
    let flags_of = heap.alloc_zeroed::<Signal>(world, 2 * streams)?;

    // One stream after the other, and then all at once.
    let (base, signals, items) = (places.offset(), flags_of.offset(), ITEMS);
    let mut times = [Duration::ZERO; 2];
    let mut found = vec![0; 8 * (words * ITEMS) as usize];
    let apart = (0..streams).map(|stream| (0, stream, 1));
    for (turn, first, blocks) in apart.chain([(1, 0, flags.streams)]) {
        let before = turn as u64 * ITEMS;
        let dim = Dim::new(blocks, 128);
        times[turn] += heap.run(world, dim, 2 * DEADLINE, |heap, status| ShmPipeline {
            heap,
            base,
            signals,
            streams,
            first,
            words,
            items,
            before,
            status,
        })?;
        for stream in (first..first + u64::from(blocks)).filter(|_| me + 1 == ranks) {
            heap.read(&places.slice(stream * each + 4 * words, words * ITEMS)?, &mut found)?;
            for (n, found) in (before + 1..).zip(found.chunks(8 * words as usize)) {
                compare(&item(stream, n, words, ranks), found)
                    .with_context(|| format!("item {n} of stream {stream}"))?;
            }
        }
        // The next stream begins when this one has come through.
        world.barrier("compared")?;
    }
    let gain = times[0].as_secs_f64() / times[1].as_secs_f64();
    session.facts([("streams", streams), ("words", words)]);
    let how = format!("at once {gain:.2} times as fast as one after the other");
    Ok(format!("every item of {streams} streams through {ranks} ranks; {how}"))
}
