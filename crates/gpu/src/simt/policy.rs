//! Choices that are left to chance: how long a turn is, who is next, how long a lane waits for
//! company.

use super::config::Mode;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Memory operations of a turn in [`Mode::Free`], and the most in a seeded one.
const LONG_TURN: u64 = 4096;

/// Decisions of one launch.
pub(crate) enum Policy {
    /// No chance at all.
    Free,
    /// As the seed says.
    Seeded(Box<Dice>),
}

/// A seed draws its own style first, so that a few seeds already cover fine interleaving, long
/// runs, stalled lanes, and a slow or a fast NIC.
pub(crate) struct Dice {
    rng: SmallRng,
    /// A turn ends before any operation with probability 1 − exp(this).
    ln_go_on: f64,
    /// The next turn goes to the same warp with this probability.
    stay: f64,
    /// One switched lane in this many stalls.
    stall_odds: u32,
    /// One turn in this many is preceded by the stepper.
    step_odds: u32,
    /// Largest log2 of the turns that a lane waits for company.
    patience_bits: u32,
    /// In lockstep: whether a spinning lane meets others where it asks who is with it.
    meets: bool,
}

impl Policy {
    /// `launch` counts the device's launches: each gets a schedule of its own.
    pub(crate) fn new(mode: Mode, lockstep: bool, launch: u64) -> Self {
        let Mode::Seeded { seed, .. } = mode else { return Self::Free };
        let mix = seed ^ launch.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = SmallRng::seed_from_u64(mix);
        // A stall needs a lane that parts from another within a few operations.
        let longest = if lockstep { 3 } else { 7 };
        Self::Seeded(Box::new(Dice {
            ln_go_on: (1.0 - 0.5f64.powi(rng.random_range(1..=longest))).ln(),
            stay: [0.0, 0.5, 0.9][rng.random_range(0..3)],
            stall_odds: 1 << rng.random_range(7..=12u32),
            step_odds: 1 << rng.random_range(0..=8u32),
            patience_bits: rng.random_range(0..=8),
            meets: lockstep && rng.random(),
            rng,
        }))
    }

    /// Memory operations of the next turn, at least 1.
    pub(crate) fn turn(&mut self) -> u64 {
        match self {
            Self::Free => LONG_TURN,
            Self::Seeded(d) => {
                // Geometric: the same as a coin flipped before every operation.
                let flip: f64 = d.rng.random();
                let ops = (1.0 - flip).ln() / d.ln_go_on;
                (ops as u64).clamp(0, LONG_TURN - 1) + 1
            }
        }
    }

    /// Nanoseconds that a lane stands still though it could run.
    pub(crate) fn stall(&mut self) -> Option<u64> {
        let Self::Seeded(d) = self else { return None };
        (d.rng.random_range(0..d.stall_odds) == 0).then(|| d.rng.random_range(100..50_000))
    }

    /// In lockstep: whether a lane that did not pause is taken for one that spins. It may compute for
    /// ever between two looks, and no other lane may depend on its standing aside.
    pub(crate) fn hogs(&mut self) -> bool {
        match self {
            Self::Free => true,
            Self::Seeded(d) => d.rng.random_range(0..32) == 0,
        }
    }

    /// In lockstep: whether a spinning lane meets others where it asks who is with it. Else it stays
    /// alone, as where those others left the loop around that place.
    pub(crate) fn meets(&self) -> bool {
        match self {
            Self::Free => false,
            Self::Seeded(d) => d.meets,
        }
    }

    /// How long a pause for `ns` takes.
    pub(crate) fn pause(&mut self, ns: u64) -> u64 {
        match self {
            Self::Free => ns,
            Self::Seeded(d) => d.rng.random_range(0..=ns.saturating_mul(2)),
        }
    }

    /// Turns of its warp that a lane waits for others at an `active_mask`; 0: goes at once.
    pub(crate) fn patience(&mut self, others_alive: u32) -> u32 {
        match self {
            // Each of the others comes by twice.
            Self::Free => 2 * others_alive,
            Self::Seeded(d) => {
                let bits = d.rng.random_range(0..=d.patience_bits);
                d.rng.random_range(0..1u32 << bits)
            }
        }
    }

    /// Whether the next turn goes to the warp of the last one.
    pub(crate) fn stay(&mut self) -> bool {
        match self {
            Self::Free => false,
            Self::Seeded(d) => {
                let stay = d.stay;
                d.rng.random_bool(stay)
            }
        }
    }

    /// Whether the stepper runs before turn number `turn`.
    pub(crate) fn steps_before(&mut self, turn: u64) -> bool {
        match self {
            Self::Free => turn.is_multiple_of(64),
            Self::Seeded(d) => d.rng.random_range(0..d.step_odds) == 0,
        }
    }

    /// One of `count` things; the first without a seed.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        match self {
            Self::Free => 0,
            Self::Seeded(d) => d.rng.random_range(0..count.max(1)),
        }
    }

    /// One of the set bits of `mask`, which is not 0; the lowest without a seed.
    pub(crate) fn choose_bit(&mut self, mask: u64) -> u32 {
        let mut rest = mask;
        for _ in 0..self.choose(mask.count_ones() as usize) {
            rest &= rest - 1;
        }
        rest.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simt::Clock;

    fn seeded(seed: u64) -> Policy {
        Policy::new(Mode::Seeded { seed, clock: Clock::Virtual }, false, 0)
    }

    #[test]
    fn a_seed_fixes_every_decision_and_launches_differ() {
        let draw = |p: &mut Policy| (0..64).map(|_| p.turn()).collect::<Vec<_>>();
        assert_eq!(draw(&mut seeded(7)), draw(&mut seeded(7)));
        assert_ne!(draw(&mut seeded(7)), draw(&mut seeded(8)));
        let mode = Mode::Seeded { seed: 7, clock: Clock::Virtual };
        assert_ne!(draw(&mut Policy::new(mode, false, 0)), draw(&mut Policy::new(mode, false, 1)));
    }

    #[test]
    fn bits_are_drawn_from_the_mask_only() {
        for seed in 0..20 {
            let mut policy = seeded(seed);
            let drawn = (0..200).fold(0, |seen, _| seen | 1u64 << policy.choose_bit(0x8000_0110));
            assert_eq!(drawn, 0x8000_0110, "seed {seed}");
        }
        assert_eq!(Policy::Free.choose_bit(0x8000_0110), 4);
    }

    #[test]
    fn turns_are_never_empty_nor_endless() {
        for seed in 0..200 {
            let mut policy = seeded(seed);
            assert!((0..200).all(|_| (1..=LONG_TURN).contains(&policy.turn())), "seed {seed}");
        }
    }
}
