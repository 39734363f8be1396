//! Expected effects of calls on the heap, on plain vectors.

use crate::device::ranks::Ranks;
use crate::numbers::Numbers;

/// Every rank's heap as it ought to be.
pub(crate) struct Model {
    pub(crate) heaps: Vec<Vec<u8>>,
}

impl Model {
    /// Fills heaps and model with the same bytes.
    pub(crate) fn fill(ranks: &Ranks, numbers: &mut Numbers) -> Self {
        let fill = |rank: usize, len: usize, numbers: &mut Numbers| {
            let bytes: Vec<u8> =
                (0..len.div_ceil(8)).flat_map(|_| numbers.next().to_le_bytes()).take(len).collect();
            ranks.fill(rank, 0, &bytes);
            bytes
        };
        let memory = ranks.memory.iter().enumerate();
        let heaps = memory.map(|(rank, memory)| fill(rank, memory.len(), numbers)).collect();
        Self { heaps }
    }

    /// `len` bytes from one rank's heap to another's.
    pub(crate) fn copy(&mut self, from: (usize, u64), to: (usize, u64), len: usize) {
        let (source, target) = (from.1 as usize, to.1 as usize);
        let bytes = self.heaps[from.0][source..source + len].to_vec();
        self.heaps[to.0][target..target + len].copy_from_slice(&bytes);
    }

    pub(crate) fn store(&mut self, rank: usize, offset: u64, bytes: &[u8]) {
        self.heaps[rank][offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Adds to the u64 at `offset`.
    pub(crate) fn add(&mut self, rank: usize, offset: u64, value: u64) {
        let bytes = &mut self.heaps[rank][offset as usize..][..8];
        let old = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        bytes.copy_from_slice(&old.wrapping_add(value).to_le_bytes());
    }

    /// Every byte of every rank.
    pub(crate) fn compare(&self, ranks: &Ranks, what: &str) {
        for (rank, expected) in self.heaps.iter().enumerate() {
            let found = ranks.bytes(rank);
            if found == *expected {
                continue;
            }
            let wrong = |i: &usize| found[*i] != expected[*i];
            let first = (0..found.len()).find(wrong).expect("they differ");
            let count = (0..found.len()).filter(wrong).count();
            panic!(
                "{what}; {}: {count} bytes of rank {rank} differ, the first at {first:#x}: {:#x} \
                 instead of {:#x}",
                ranks.what, found[first], expected[first]
            );
        }
    }
}
