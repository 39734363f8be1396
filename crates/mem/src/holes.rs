//! First-fit division of a range of addresses.

use std::collections::BTreeMap;

/// The free pieces of a range, coalesced. The same calls in the same order give the same pieces.
#[derive(Clone, Debug, Default)]
pub struct Holes(BTreeMap<u64, u64>);

impl Holes {
    /// `len` free bytes from `at` on.
    pub fn new(at: u64, len: u64) -> Self {
        let mut holes = Self::default();
        holes.give(at, len);
        holes
    }

    /// Takes `len` bytes, more than none, at the first multiple of `align` where they are free.
    pub fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let mut large = self.0.iter().filter(|&(_, &room)| room >= len);
        let (at, room, begin) = large.find_map(|(&at, &room)| {
            let begin = at.checked_next_multiple_of(align)?;
            let skipped = begin - at;
            (skipped <= room - len).then_some((at, room, begin))
        })?;
        self.0.remove(&at);
        let after = begin + len;
        for (hole, bytes) in [(at, begin - at), (after, at + room - after)] {
            if bytes > 0 {
                self.0.insert(hole, bytes);
            }
        }
        Some(begin)
    }

    /// Adds bytes that were taken, or are new at an end of the range.
    pub fn give(&mut self, mut at: u64, mut len: u64) {
        if len == 0 {
            return;
        }
        if let Some(after) = self.0.remove(&(at + len)) {
            len += after;
        }
        let before = self.0.range(..at).next_back().map(|(&at, &room)| (at, room));
        if let Some((start, room)) = before.filter(|(start, room)| start + room == at) {
            (at, len) = (start, room + len);
        }
        self.0.insert(at, len);
    }

    /// Length of the hole that begins at `at`.
    pub fn len_at(&self, at: u64) -> u64 {
        self.0.get(&at).copied().unwrap_or(0)
    }

    /// Bytes free in all.
    pub fn free_bytes(&self) -> u64 {
        self.0.values().sum()
    }

    /// Length of the largest hole.
    pub fn largest(&self) -> u64 {
        self.0.values().copied().max().unwrap_or(0)
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
        let mut holes = Holes::new(0, total);
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut refused = 0;
        for _ in 0..4000 {
            if rng.random_bool(0.55) {
                let (len, align) = (rng.random_range(1..3000), 1 << rng.random_range(0..10));
                let Some(at) = holes.take(len, align) else {
                    refused += 1;
                    continue;
                };
                assert_eq!(at % align, 0);
                assert!(at + len <= total);
                let clash = held.iter().find(|&&(a, l)| at < a + l && a < at + len);
                assert_eq!(clash, None, "{at}+{len}");
                held.push((at, len));
            } else if !held.is_empty() {
                let (at, len) = held.swap_remove(rng.random_range(0..held.len()));
                holes.give(at, len);
            }
            assert_eq!(holes.free_bytes(), total - held.iter().map(|(_, len)| len).sum::<u64>());
        }
        assert!(refused > 0, "the test never filled the range");
        assert!(holes.largest() < total);
        held.drain(..).for_each(|(at, len)| holes.give(at, len));
        assert_eq!((holes.len_at(0), holes.largest()), (total, total));
        assert_eq!((holes.take(total + 1, 1), holes.take(u64::MAX, 1)), (None, None));
        assert_eq!((holes.take(total, 256), holes.take(1, 1)), (Some(0), None));
    }
}
