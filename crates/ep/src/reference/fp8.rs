//! Rows of fp8 e4m3 and their scales.

use super::float_of;
use crate::{EpConfig, Payload, Scale};
use warpverbs_gpu::layout::EP_SCALED;

/// 1 / 448, rounded.
const OF_LARGEST: f32 = 1.0 / 448.0;
/// Magnitudes below it count as this.
const LEAST: f32 = 1e-4;

/// The e4m3 nearest to `value`, the even one of two; 448 with its sign beyond that, and 0x7f of every NaN.
pub fn e4m3_of(value: f32) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let bits = value.abs().to_bits();
    // Exponents from 2^-6 on have three digits behind the first, lower ones fewer, and below half of
    // the smallest number none.
    let exponent = bits >> 23;
    let shared = exponent.max(121);
    let shift = (20 + shared - exponent).min(25);
    let digits = bits & 0x7f_ffff | 0x80_0000;
    let half = (1 << (shift - 1)) - 1 + (digits >> shift & 1);
    let magnitude = ((digits + half) >> shift) + ((shared - 121) << 3);
    sign | magnitude.min(0x7e) as u8
}

/// The value of an e4m3.
pub fn float_of_e4m3(bits: u8) -> f32 {
    let (exponent, digits) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => digits / 512.0,
        _ => (1.0 + digits / 8.0) * 2f32.powi(exponent - 7),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The largest finite magnitude of a group's bf16 elements, but no less than 1e-4.
fn largest(group: &[u16]) -> f32 {
    let magnitudes = group.iter().map(|bits| bits & 0x7fff).filter(|bits| *bits < 0x7f80);
    float_of(magnitudes.max().unwrap_or(0)).max(LEAST)
}

/// The exponent of the least power of two that is no less than a positive normal number.
fn exponent_above(value: f32) -> u32 {
    ((value.to_bits() - 1) >> 23) + 1
}

/// A scale as a row has it, and what elements are multiplied with for it.
fn scale_of(scale: Scale, largest: f32) -> (u32, f32) {
    let worth = largest * OF_LARGEST;
    match scale {
        Scale::F32 => (worth.to_bits(), 448.0 / largest),
        Scale::PowerOfTwo | Scale::Ue8m0 => {
            let exponent = exponent_above(worth);
            let word = if scale == Scale::Ue8m0 { exponent } else { exponent << 23 };
            (word, f32::from_bits((254 - exponent) << 23))
        }
    }
}

/// A bf16 row as e4m3, with the words of its scales.
pub fn cast(scale: Scale, row: &[u16]) -> (Vec<u8>, Vec<u32>) {
    let (mut bytes, mut words) = (Vec::new(), Vec::new());
    for (n, group) in row.chunks(EP_SCALED).enumerate() {
        let (word, factor) = scale_of(scale, largest(group));
        match (scale, n % 4) {
            (Scale::Ue8m0, 1..) => words[n / 4] |= word << (8 * (n % 4)),
            _ => words.push(word),
        }
        bytes.extend(group.iter().map(|bits| e4m3_of(float_of(*bits) * factor)));
    }
    (bytes, words)
}

impl EpConfig {
    /// A row as it travels, of what the caller gives, and its scales.
    pub(super) fn payload_of(&self, row: &[u16], scales: &[u32]) -> (Vec<u16>, Vec<u32>) {
        match self.payload {
            Payload::Bf16 | Payload::Fp8(_) => (row.to_vec(), scales.to_vec()),
            Payload::Cast(scale) => {
                let (bytes, words) = cast(scale, row);
                let pairs = bytes.as_chunks().0.iter();
                (pairs.map(|two| u16::from_le_bytes(*two)).collect(), words)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::bf16_of;

    /// By looking at all numbers that there are.
    fn nearest(value: f32) -> u8 {
        if value.is_nan() {
            return 0x7f;
        }
        let far =
            |bits: u8| (f64::from(float_of_e4m3(bits)) - f64::from(value.abs().min(1e3))).abs();
        let closer = |a: u8, b: u8| {
            let order = far(a).total_cmp(&far(b)).then((a & 1).cmp(&(b & 1)));
            if order.is_le() { a } else { b }
        };
        let found = (0..0x7f).reduce(closer).unwrap();
        found | if value.is_sign_negative() { 0x80 } else { 0 }
    }

    #[test]
    fn every_bf16_goes_to_the_nearest_e4m3() {
        for bits in 0..=u16::MAX {
            let value = float_of(bits);
            assert_eq!(e4m3_of(value), nearest(value), "{bits:#x}, {value}");
        }
    }

    #[test]
    fn halves_and_their_neighbours_go_to_the_nearest_e4m3() {
        for bits in 0..0x7eu8 {
            let half = f32::midpoint(float_of_e4m3(bits), float_of_e4m3(bits + 1));
            for value in [half.next_down(), half, half.next_up(), float_of_e4m3(bits)] {
                assert_eq!(e4m3_of(value), nearest(value), "{value}");
                assert_eq!(e4m3_of(-value), nearest(-value), "{value}");
            }
        }
    }

    /// Those that give 448 or a little less, or are no numbers.
    #[test]
    fn scales_are_what_they_are_said_to_be() {
        let cases: [(f32, u32, u8); 4] = [
            (448.0, 1.0f32.to_bits(), 127),
            (1.0, (1.0f32 / 448.0).to_bits(), 119),
            (0.0, (1e-4f32 * OF_LARGEST).to_bits(), 105),
            (3e38, (float_of(bf16_of(3e38)) * OF_LARGEST).to_bits(), 247),
        ];
        for (largest, word, exponent) in cases {
            let row = [bf16_of(-largest), 0x8000, 0x7f80, 0x7fc0, 1];
            let (bytes, words) = cast(Scale::F32, &row);
            assert_eq!(words, [word], "{largest}");
            let first = if largest == 0.0 { 0x80 } else { 0xfe };
            assert_eq!(bytes, [first, 0x80, 0x7e, 0x7f, 0], "{largest}");
            let (_, words) = cast(Scale::PowerOfTwo, &row);
            assert_eq!(words, [u32::from(exponent) << 23], "{largest}");
            assert_eq!(cast(Scale::Ue8m0, &row).1, [u32::from(exponent)], "{largest}");
        }
        let (bytes, words) = cast(Scale::Ue8m0, &[bf16_of(448.0); 5 * 128 + 16]);
        assert_eq!(words, [0x7f7f_7f7f, 0x7f7f]);
        assert!(bytes.iter().all(|byte| *byte == 0x7e));
    }
}
