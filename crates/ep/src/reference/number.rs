//! Numbers of 16 bits.

/// The bf16 nearest to `value`, the even one of two; every NaN is 0x7fff.
pub fn bf16_of(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return 0x7fff;
    }
    // The largest finite numbers round to infinity, whose bits come next.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The value of a bf16.
pub fn float_of(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bf16_is_its_own_nearest() {
        for bits in 0..=u16::MAX {
            let value = float_of(bits);
            let expected = if value.is_nan() { 0x7fff } else { bits };
            assert_eq!(bf16_of(value), expected, "{bits:#x}");
        }
    }

    #[test]
    fn halves_go_to_the_even_one() {
        for (bits, expected) in [
            (0x3f80_8000, 0x3f80),
            (0x3f80_8001, 0x3f81),
            (0x3f81_8000, 0x3f82),
            (0x3f80_7fff, 0x3f80),
            (0x0000_8000, 0),
            (0x0000_8001, 1),
            (0x7f7f_8000, 0x7f80),
            (0xff7f_ffff, 0xff80),
            (0x8000_0000, 0x8000),
        ] {
            assert_eq!(bf16_of(f32::from_bits(bits)), expected, "{bits:#x}");
        }
    }
}
