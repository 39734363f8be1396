//! Expected effects of the calls, on plain vectors.

use crate::numbers::Numbers;

/// The same place of every rank as it ought to be. Every process has one of all ranks.
pub(super) struct Model {
    places: Vec<Vec<u8>>,
}

impl Model {
    pub(super) fn new(world: u32, len: usize, numbers: &mut Numbers) -> Self {
        let mut place = || -> Vec<u8> {
            (0..len.div_ceil(8)).flat_map(|_| numbers.next().to_le_bytes()).take(len).collect()
        };
        Self { places: (0..world).map(|_| place()).collect() }
    }

    pub(super) fn of(&self, rank: u32) -> &[u8] {
        &self.places[rank as usize]
    }

    /// `len` bytes from one rank's place to another's.
    pub(super) fn copy(&mut self, from: (u32, u64), to: (u32, u64), len: u64) {
        let (start, len) = (from.1 as usize, len as usize);
        let bytes = self.of(from.0)[start..start + len].to_vec();
        self.store(to.0, to.1, &bytes);
    }

    pub(super) fn store(&mut self, rank: u32, at: u64, bytes: &[u8]) {
        self.places[rank as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The word of `width` bytes, 4 or 8.
    pub(super) fn word(&self, rank: u32, at: u64, width: u64) -> u64 {
        let bytes = &self.of(rank)[at as usize..][..width as usize];
        bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    /// Adds to the u64.
    pub(super) fn add(&mut self, rank: u32, at: u64, value: u64) {
        let sum = self.word(rank, at, 8).wrapping_add(value);
        self.store(rank, at, &sum.to_le_bytes());
    }
}

/// Fails at the first byte that is not as it should be.
pub(super) fn compare(what: &str, found: &[u8], expected: &[u8]) {
    if found == expected {
        return;
    }
    let wrong: Vec<_> = (0..found.len()).filter(|&i| found[i] != expected[i]).collect();
    let at = wrong[0];
    panic!(
        "{what}: {} bytes differ, the first at {at:#x}: {:#x} instead of {:#x}",
        wrong.len(),
        found[at],
        expected[at]
    );
}
