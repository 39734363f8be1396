//! Sequence numbers of 24 bits. They go round, so they have distances but no order: there is no
//! `Ord` here on purpose.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// How many different values there are: 2^24.
            pub const MODULUS: u32 = MASK + 1;

            /// `value`, or `None` if it needs more than 24 bits.
            pub const fn new(value: u32) -> Option<Self> {
                if value > MASK { None } else { Some(Self(value)) }
            }

            /// The low 24 bits of `value`.
            #[inline]
            pub const fn from_low_bits(value: u32) -> Self {
                Self(value & MASK)
            }

            /// The number, below 2^24.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Steps forward from `earlier` to `self`, 0 to 2^24 − 1.
            #[inline]
            pub const fn steps_from(self, earlier: Self) -> u32 {
                self.0.wrapping_sub(earlier.0) & MASK
            }

            /// The shorter signed way from `other` to `self`, −2^23 to 2^23 − 1: positive if
            /// `self` is later.
            #[inline]
            pub const fn offset_from(self, other: Self) -> i32 {
                // Moved to the top so that bit 23 becomes the sign.
                (self.0.wrapping_sub(other.0) << (32 - BITS)) as i32 >> (32 - BITS)
            }

            /// Whether `self` lies in the half of the circle behind `other`.
            #[inline]
            pub const fn is_before(self, other: Self) -> bool {
                self.offset_from(other) < 0
            }

            /// Whether `self` is one of the `len` numbers beginning at `start`.
            #[inline]
            pub const fn is_in_window(self, start: Self, len: u32) -> bool {
                self.steps_from(start) < len
            }
        }

        impl Add<u32> for $name {
            type Output = Self;
            #[inline]
            fn add(self, steps: u32) -> Self {
                Self::from_low_bits(self.0.wrapping_add(steps))
            }
        }

        impl AddAssign<u32> for $name {
            #[inline]
            fn add_assign(&mut self, steps: u32) {
                *self = *self + steps;
            }
        }

        impl Sub<u32> for $name {
            type Output = Self;
            #[inline]
            fn sub(self, steps: u32) -> Self {
                Self::from_low_bits(self.0.wrapping_sub(steps))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

serial! {
    /// A packet sequence number (vol. 1, 9.7.1). At most 2^23 packets are ever outstanding, hence
    /// [`offset_from`](Psn::offset_from) tells new from duplicate without doubt.
    Psn
}

serial! {
    /// A message sequence number: how many messages the responder has completed (9.7.7.1).
    Msn
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value against steps around each point where the arithmetic could break.
    #[test]
    fn laws_hold_for_every_number() {
        let steps = [0, 1, 2, 0x7f_ffff, 0x80_0000, 0x80_0001, 0xff_ffff, 0x100_0000, u32::MAX];
        for value in 0..Psn::MODULUS {
            let psn = Psn::from_low_bits(value);
            for step in steps {
                let there = psn + step;
                let distance = step & MASK;
                let signed = if distance < 0x80_0000 {
                    distance as i32
                } else {
                    distance as i32 - Psn::MODULUS as i32
                };
                assert!(
                    there.get() <= MASK
                        && there - step == psn
                        && there.steps_from(psn) == distance
                        && there.offset_from(psn) == signed
                        && psn.is_before(there) == (signed > 0 || distance == 0x80_0000),
                    "{value} + {step:#x}"
                );
            }
        }
    }

    /// Every distance from a few origins: exactly one of before, same, after; opposite seen from
    /// the other side, except at the antipode, which has no opposite.
    #[test]
    fn comparison_is_total_and_antisymmetric_within_half_the_circle() {
        for origin in [0, 1, 0x7f_ffff, 0x80_0000, 0xff_ffff].map(Psn::from_low_bits) {
            for steps in 0..Psn::MODULUS {
                let other = origin + steps;
                let (out, back) = (other.offset_from(origin), origin.offset_from(other));
                assert!(origin + (out as u32) == other, "{origin} {steps}");
                if steps == 0x80_0000 {
                    assert_eq!((out, back), (-0x80_0000, -0x80_0000));
                } else {
                    assert_eq!(out, -back, "{origin} {steps}");
                }
                assert!(!other.is_in_window(origin, steps), "{origin} {steps}");
                assert!(other.is_in_window(origin, steps + 1), "{origin} {steps}");
            }
        }
    }

    #[test]
    fn new_refuses_a_25th_bit() {
        assert_eq!(Psn::new(MASK).map(Psn::get), Some(MASK));
        assert_eq!(Psn::new(MASK + 1), None);
        assert_eq!(Psn::from_low_bits(MASK + 6).get(), 5);
    }
}
