//! Items that a pipeline of ranks transforms, as the host makes them to compare.

use super::heap::{compare, read};
use anyhow::Result;
use warpverbs::shmem::{Heap, Sym};

/// Items of each stream in a launch.
pub(crate) const ITEMS: u64 = 8;

pub(crate) fn words(size: u64) -> u64 {
    size.div_ceil(8)
}

/// What the last of `ranks` makes of an item.
fn item(stream: u64, item: u64, words: u64, ranks: u32) -> Vec<u8> {
    let word = |i: u64| {
        let first = (stream << 48 ^ item << 32 ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let last = (0..ranks).fold(first, |word, rank| {
            let mixed = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed.wrapping_add(u64::from(rank))
        });
        last.to_le_bytes()
    };
    (0..words).flat_map(word).collect()
}

/// The results of one stream, on the last rank.
pub(crate) fn results(heap: &Heap, places: &Sym<u8>, stream: u64, words: u64) -> Result<Vec<u8>> {
    let start = 8 * words * (stream * (4 + ITEMS) + 4);
    read(heap, &places.slice(start, 8 * words * ITEMS)?, 8 * words * ITEMS)
}

/// The last rank has all items of all streams.
pub(crate) fn check(
    heap: &Heap,
    places: &Sym<u8>,
    streams: u32,
    words: u64,
    before: u64,
) -> Result<()> {
    if heap.rank() + 1 < heap.world() {
        return Ok(());
    }
    for stream in 0..streams.into() {
        let found = results(heap, places, stream, words)?;
        for (n, found) in (before + 1..).zip(found.chunks(8 * words as usize)) {
            let expected = item(stream, n, words, heap.world());
            compare(&format!("item {n} of stream {stream}"), found, &expected)?;
        }
    }
    Ok(())
}
