//! Payload that two ends can make alike.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// `len` bytes at random, the same for the same `seed`.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
