//! Numbers of queues: QP numbers, counters that a queue carries with fewer bits, laps of a ring.

use core::fmt;

/// A QP number, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The largest QP number.
    pub const MAX: Self = Self(0xff_ffff);

    /// `None` if `value` needs more than 24 bits.
    #[inline]
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn truncate(value: u32) -> Self {
        Self(value & Self::MAX.0)
    }

    /// The number, native order.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The smallest counter ≥ `floor` whose low `bits` bits, 1 to 32, are those of `value`. Wraps at 2^64.
#[inline]
pub const fn widen(value: u32, bits: u32, floor: u64) -> u64 {
    let mask = u32::MAX >> (32 - bits);
    floor.wrapping_add((value.wrapping_sub(floor as u32) & mask) as u64)
}

/// Whether entry `index`, which is not masked, belongs to an odd lap of a ring of 2^`log_size` entries;
/// the first lap is even. Bits by which entries tell that they are new alternate with the laps.
#[inline]
pub const fn is_odd_lap(index: u64, log_size: u8) -> bool {
    index >> log_size & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_widened_to_the_next_one_with_its_bits() {
        for bits in [1, 8, 16, 24, 32] {
            let window = 1_u64 << bits;
            for floor in [0, 1, window - 1, window, 3 * window + 5, (1 << 40) - 1] {
                for ahead in [0, 1, window / 2, window - 1] {
                    let counter = floor + ahead;
                    assert_eq!(widen(counter as u32, bits, floor), counter, "{bits} {floor}");
                }
            }
        }
        // Bits above those that count are not looked at.
        assert_eq!(widen(0xabcd_0003, 16, 2), 3);
    }

    #[test]
    fn laps_alternate() {
        let odd = |index| is_odd_lap(index, 3);
        assert_eq!([0, 7, 8, 15, 16].map(odd), [false, false, true, true, false]);
    }

    #[test]
    fn queue_pair_numbers_have_24_bits() {
        assert_eq!((Qpn::new(1 << 24), Qpn::new(0xff_ffff)), (None, Some(Qpn::MAX)));
        assert_eq!(Qpn::truncate(0xab00_0042).get(), 0x42);
    }
}
