//! First-fit division of one span of addresses.

use std::collections::BTreeMap;

/// Granule and alignment of every piece, bytes.
pub(crate) const GRANULE: u64 = 256;

/// The free pieces of `[0, len)`, coalesced.
#[derive(Debug)]
pub(crate) struct Suballocator {
    len: u64,
    free: BTreeMap<u64, u64>,
}

impl Suballocator {
    /// All of `[0, len)` is free; `len` is a multiple of [`GRANULE`].
    pub(crate) fn new(len: u64) -> Self {
        Self { len, free: BTreeMap::from([(0, len)]) }
    }

    /// Offset of a free piece of `len` bytes, rounded up to the granule, which is now taken.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let len = len.max(1).checked_next_multiple_of(GRANULE)?;
        let (&at, &room) = self.free.iter().find(|&(_, &room)| room >= len)?;
        self.free.remove(&at);
        if room > len {
            self.free.insert(at + len, room - len);
        }
        Some(at)
    }

    /// Gives back a piece that [`Suballocator::take`] gave for the same `len`.
    pub(crate) fn give(&mut self, at: u64, len: u64) {
        let (mut at, mut end) = (at, at + len.max(1).next_multiple_of(GRANULE));
        if let Some(room) = self.free.remove(&end) {
            end += room;
        }
        let before = self.free.range(..at).next_back().map(|(&at, &room)| (at, room));
        if let Some((start, room)) = before.filter(|&(start, room)| start + room == at) {
            self.free.remove(&start);
            at -= room;
        }
        self.free.insert(at, end - at);
    }

    /// Whether nothing is taken.
    pub(crate) fn is_untouched(&self) -> bool {
        self.free.get(&0) == Some(&self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    #[test]
    fn pieces_are_aligned_and_never_overlap_and_all_comes_back() {
        let seed = rand::rng().random::<u64>();
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let total = 64 * 1024;
        let mut spans = Suballocator::new(total);
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut refused = 0;
        for _ in 0..4000 {
            if rng.random_bool(0.55) {
                let len = rng.random_range(0..3000);
                let Some(at) = spans.take(len) else {
                    refused += 1;
                    continue;
                };
                assert_eq!(at % GRANULE, 0);
                assert!(at + len <= total);
                let clash = held.iter().find(|&&(a, l)| at < a + l.max(1) && a < at + len.max(1));
                assert_eq!(clash, None, "{at}+{len}");
                held.push((at, len));
            } else if !held.is_empty() {
                let (at, len) = held.swap_remove(rng.random_range(0..held.len()));
                spans.give(at, len);
            }
        }
        assert!(refused > 0, "the test never filled the span");
        assert!(!spans.is_untouched());
        held.drain(..).for_each(|(at, len)| spans.give(at, len));
        assert!(spans.is_untouched());
        assert_eq!(spans.take(total), Some(0));
        assert_eq!(spans.take(1), None);
    }

    #[test]
    fn an_impossible_length_is_refused() {
        let mut spans = Suballocator::new(4096);
        assert_eq!(spans.take(u64::MAX), None);
        assert_eq!(spans.take(4097), None);
        assert!(spans.is_untouched());
    }
}
