//! Expected effects of calls on plain vectors, for tests of this crate and of `shmem`.

use rand::Rng;
use rand::rngs::SmallRng;

/// The memory of every rank as it ought to be.
pub(crate) struct Model {
    places: Vec<Vec<u8>>,
}

impl Model {
    /// Random bytes, `len` of each rank.
    pub(crate) fn new(ranks: u32, len: usize, rng: &mut SmallRng) -> Self {
        let mut places = vec![vec![0; len]; ranks as usize];
        places.iter_mut().for_each(|place| rng.fill_bytes(place));
        Self { places }
    }

    pub(crate) fn of(&self, rank: u32) -> &[u8] {
        &self.places[rank as usize]
    }

    /// `len` bytes from one rank's memory to another's.
    pub(crate) fn copy(&mut self, from: (u32, u64), to: (u32, u64), len: u64) {
        let bytes = self.of(from.0)[from.1 as usize..][..len as usize].to_vec();
        self.store(to.0, to.1, &bytes);
    }

    pub(crate) fn store(&mut self, rank: u32, at: u64, bytes: &[u8]) {
        self.places[rank as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The word of `width` bytes, 4 or 8.
    pub(crate) fn word(&self, rank: u32, at: u64, width: u64) -> u64 {
        let bytes = &self.of(rank)[at as usize..][..width as usize];
        bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    /// Adds to the u64.
    pub(crate) fn add(&mut self, rank: u32, at: u64, value: u64) {
        let sum = self.word(rank, at, 8).wrapping_add(value);
        self.store(rank, at, &sum.to_le_bytes());
    }

    /// Fails at the first byte of a rank's memory that is not as it should be.
    pub(crate) fn compare(&self, rank: u32, found: &[u8], what: &str) {
        let expected = self.of(rank);
        if found == expected {
            return;
        }
        let wrong: Vec<_> = (0..expected.len()).filter(|&i| found[i] != expected[i]).collect();
        let at = wrong[0];
        panic!(
            "{what}: {} bytes of rank {rank} differ, the first at {at:#x}: {:#x} instead of {:#x}",
            wrong.len(),
            found[at],
            expected[at]
        );
    }
}
