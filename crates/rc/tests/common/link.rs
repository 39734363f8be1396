//! A link that carries whole packets in one direction and does to them what networks do.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Probabilities for each packet, and times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    /// One bit is flipped.
    pub(crate) corruption: f64,
    /// Delayed by up to `jitter` more.
    pub(crate) reordering: f64,
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
    /// Nanoseconds that each packet occupies the link.
    pub(crate) occupancy: u64,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) faults: Faults,
    rng: StdRng,
    in_flight: BTreeMap<(u64, u64), Vec<u8>>,
    sent: u64,
    /// When the link is done with what was sent.
    pub(crate) busy_until: u64,
}

impl Link {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self { faults, rng, in_flight: BTreeMap::new(), sent: 0, busy_until: 0 }
    }

    pub(crate) fn send(&mut self, now: u64, packet: &[u8]) {
        let copies = 1 + u32::from(self.rng.random_bool(self.faults.duplication));
        for _ in 0..copies {
            self.busy_until = self.busy_until.max(now) + self.faults.occupancy;
            if self.rng.random_bool(self.faults.loss) {
                continue;
            }
            let mut packet = packet.to_vec();
            if self.rng.random_bool(self.faults.corruption) {
                let bit = self.rng.random_range(0..8 * packet.len());
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            let late = match self.rng.random_bool(self.faults.reordering) {
                true => self.rng.random_range(0..self.faults.jitter.max(1)),
                false => 0,
            };
            self.sent += 1;
            let at = self.busy_until + self.faults.delay + late;
            self.in_flight.insert((at, self.sent), packet);
        }
    }

    pub(crate) fn next_arrival(&self) -> Option<u64> {
        self.in_flight.keys().next().map(|(at, _)| *at)
    }

    pub(crate) fn arrive(&mut self, now: u64) -> Option<Vec<u8>> {
        let entry = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}
