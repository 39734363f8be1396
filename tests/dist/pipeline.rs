//! Items that a pipeline of ranks transforms, as the host makes them to compare.

use super::heap::{compare, read};
use anyhow::Result;
use warpverbs::shmem::{Heap, Signal, Sym};

/// Items of each stream in a launch.
pub(crate) const ITEMS: u64 = 8;

pub(crate) fn words(size: u64) -> u64 {
    size.div_ceil(8)
}

/// An item as the last of `ranks` makes it.
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

/// Where ranks have their items: all streams of a launch.
pub(crate) struct Items {
    pub(crate) places: Sym<u8>,
    pub(crate) signals: Sym<Signal>,
    pub(crate) streams: u32,
}

impl Items {
    /// Bytes of a stream's places: four on the way and the results.
    fn each(most: u64) -> u64 {
        (4 + ITEMS) * 8 * words(most)
    }

    pub(crate) fn heap_bytes(streams: u32, most: u64) -> u64 {
        u64::from(streams) * (Self::each(most) + 32)
    }

    pub(crate) fn new(heap: &mut Heap, streams: u32, most: u64) -> Result<Self> {
        let places = heap.alloc(u64::from(streams) * Self::each(most))?;
        Ok(Self { places, signals: heap.alloc(2 * u64::from(streams))?, streams })
    }

    /// The results of one stream, on the last rank.
    fn results(&self, heap: &Heap, stream: u64, words: u64) -> Result<Vec<u8>> {
        let start = 8 * words * (stream * (4 + ITEMS) + 4);
        read(heap, &self.places.slice(start, 8 * words * ITEMS)?, 8 * words * ITEMS)
    }

    /// Those of all streams.
    pub(crate) fn arrived(&self, heap: &Heap, words: u64) -> Result<Vec<u8>> {
        let results = (0..self.streams.into()).map(|stream| self.results(heap, stream, words));
        Ok(results.collect::<Result<Vec<_>>>()?.concat())
    }

    /// The last rank has all items of all streams.
    pub(crate) fn check(&self, heap: &Heap, words: u64, before: u64) -> Result<()> {
        if heap.rank() + 1 < heap.world() {
            return Ok(());
        }
        for stream in 0..self.streams.into() {
            let found = self.results(heap, stream, words)?;
            for (n, found) in (before + 1..).zip(found.chunks(8 * words as usize)) {
                let expected = item(stream, n, words, heap.world());
                compare(&format!("item {n} of stream {stream}"), found, &expected)?;
            }
        }
        Ok(())
    }
}
