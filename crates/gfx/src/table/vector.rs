//! VOP1, VOP2, VOPC, VOP3, VOP3P. A flag is the lane's bit of a mask.
use super::row::{Lane, borrow, carry, compute, first, op, special};
use crate::inst::{Encoding::*, Inst, Kind::*, Op, Run};
use crate::wave::Wave;
use std::cmp::Ordering;

/// The low 24 bits, with and without a sign.
fn u24(a: u32) -> u32 {
    a & 0xff_ffff
}
fn i24(a: u32) -> i32 {
    (a << 8) as i32 >> 8
}
fn ordered(a: f32, b: f32) -> bool {
    !a.is_nan() && !b.is_nan()
}
/// Each byte of the selector names one of the eight of `a` above `b`, or a constant.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let all = u64::from(a) << 32 | u64::from(b);
    let byte = |select: u8| match select {
        0..=7 => (all >> (8 * select)) as u8,
        8..=11 => {
            if all >> (16 * (select - 8) + 15) & 1 != 0 {
                0xff
            } else {
                0
            }
        }
        12 => 0,
        _ => 0xff,
    };
    u32::from_le_bytes(selector.to_le_bytes().map(byte))
}
/// The fraction, which is less than 1 also where rounding would make it 1.
fn fract(a: f32) -> f32 {
    let rest = a - a.floor();
    if rest == 1.0 { 1.0_f32.next_down() } else { rest }
}
/// The one of that order, where -0 is less than 0. A NaN gives way to a number unless it signals.
fn extreme(a: f32, b: f32, order: Ordering) -> f32 {
    let signals = |value: f32| value.is_nan() && value.to_bits() & 1 << 22 == 0;
    if signals(a) || signals(b) {
        f32::NAN
    } else if b.is_nan() || !a.is_nan() && a.total_cmp(&b) == order {
        a
    } else {
        b
    }
}
/// The flag is the sign of the sum as 65 bits have it.
fn mad_i64(a: i32, b: i32, c: i64) -> (i64, bool) {
    let sum = i128::from(a) * i128::from(b) + i128::from(c);
    (sum as i64, sum < 0)
}
/// 2 to the power of `exponent`, exact also where it is the factor of a denormal number.
fn scale(value: f32, exponent: i32) -> f32 {
    (f64::from(value) * f64::from(exponent).exp2()) as f32
}
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32
}
/// Which of numerator and denominator a division must scale, as the manual has it.
fn div_scale(value: f32, denominator: f32, numerator: f32) -> (f32, bool) {
    let (d, n) = (exponent(denominator), exponent(numerator));
    let denormal = |value: f32| value != 0.0 && exponent(value) == 0;
    let same = value.to_bits() == denominator.to_bits();
    if numerator == 0.0 || denominator == 0.0 {
        (f32::NAN, false)
    } else if n - d >= 96 {
        (if same { scale(value, 64) } else { value }, true)
    } else if denormal(denominator) {
        (scale(value, 64), false)
    } else if denormal(1.0 / denominator) && denormal(numerator / denominator) {
        // The manual has 64 here, which no large denominator can be multiplied with.
        (if same { scale(value, -64) } else { value }, true)
    } else if denormal(1.0 / denominator) {
        (scale(value, -64), false)
    } else if denormal(numerator / denominator) {
        (if value.to_bits() == numerator.to_bits() { scale(value, 64) } else { value }, true)
    } else if n <= 23 {
        (scale(value, 64), false)
    } else {
        (value, false)
    }
}
/// The last step of a division, whose scaling is taken back with one rounding.
fn div_fmas(a: f32, b: f32, c: f32, scaled: bool) -> f32 {
    if !scaled {
        return a.mul_add(b, c);
    }
    // The product is exact. If the sum is not, its last bit is set, so that only the last rounding counts.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let lost = (product - (sum - (sum - product))) + (c - (sum - product));
    let mut exact = sum;
    if lost.is_finite() && lost != 0.0 {
        let is_beyond = (lost < 0.0) == (sum > 0.0);
        exact = f64::from_bits((sum.to_bits() - u64::from(is_beyond)) | 1);
    }
    (exact * if exponent(c as f32) > 127 { 64.0_f64 } else { -64.0 }.exp2()) as f32
}
/// The quotient where the ordinary steps do not find it.
fn div_fixup(quotient: f32, denominator: f32, numerator: f32) -> f32 {
    let sign =
        if (denominator.to_bits() ^ numerator.to_bits()) >> 31 != 0 { -1.0_f32 } else { 1.0 };
    if numerator.is_nan() {
        numerator
    } else if denominator.is_nan() {
        denominator
    } else if numerator == 0.0 && denominator == 0.0
        || numerator.is_infinite() && denominator.is_infinite()
    {
        f32::NAN
    } else if denominator == 0.0 || numerator.is_infinite() {
        f32::INFINITY.copysign(sign)
    } else if denominator.is_infinite()
        || numerator == 0.0
        || exponent(numerator) - exponent(denominator) < -150
    {
        0.0_f32.copysign(sign)
    // The steps give no number where the quotient is too large; the manual does not mention that case.
    } else if exponent(denominator) == 255 || quotient.is_nan() {
        f32::INFINITY.copysign(sign)
    } else {
        quotient.abs().copysign(sign)
    }
}

/// Lines with a type of integers, and the number before those of its comparisons.
macro_rules! integers {
    ($($t:ident $before:literal;)*) => {
        &[$(
            op!(Vopc $before + 1, concat!("v_cmp_lt_", stringify!($t)), (a: $t, b: $t) -> bool = a < b),
            op!(Vopc $before + 2, concat!("v_cmp_eq_", stringify!($t)), (a: $t, b: $t) -> bool = a == b),
            op!(Vopc $before + 3, concat!("v_cmp_le_", stringify!($t)), (a: $t, b: $t) -> bool = a <= b),
            op!(Vopc $before + 4, concat!("v_cmp_gt_", stringify!($t)), (a: $t, b: $t) -> bool = a > b),
            op!(Vopc $before + 5, concat!("v_cmp_ne_", stringify!($t)), (a: $t, b: $t) -> bool = a != b),
            op!(Vopc $before + 6, concat!("v_cmp_ge_", stringify!($t)), (a: $t, b: $t) -> bool = a >= b),
        )*]
    };
}
pub(super) static INTEGERS: &[Op] =
    integers! { i16 0xa0; u16 0xa8; i32 0xc0; u32 0xc8; i64 0xe0; u64 0xe8; };

#[rustfmt::skip]
pub(super) static COMPARES: &[Op] = compute! {
    Vopc 0x41 v_cmp_lt_f32(a: f32, b: f32) -> bool = a < b;
    Vopc 0x42 v_cmp_eq_f32(a: f32, b: f32) -> bool = a == b;
    Vopc 0x43 v_cmp_le_f32(a: f32, b: f32) -> bool = a <= b;
    Vopc 0x44 v_cmp_gt_f32(a: f32, b: f32) -> bool = a > b;
    Vopc 0x45 v_cmp_lg_f32(a: f32, b: f32) -> bool = ordered(a, b) && a != b;
    Vopc 0x46 v_cmp_ge_f32(a: f32, b: f32) -> bool = a >= b;
    Vopc 0x47 v_cmp_o_f32(a: f32, b: f32) -> bool = ordered(a, b);
    Vopc 0x48 v_cmp_u_f32(a: f32, b: f32) -> bool = !ordered(a, b);
    Vopc 0x49 v_cmp_nge_f32(a: f32, b: f32) -> bool = a < b || !ordered(a, b);
    Vopc 0x4a v_cmp_nlg_f32(a: f32, b: f32) -> bool = a == b || !ordered(a, b);
    Vopc 0x4b v_cmp_ngt_f32(a: f32, b: f32) -> bool = a <= b || !ordered(a, b);
    Vopc 0x4c v_cmp_nle_f32(a: f32, b: f32) -> bool = a > b || !ordered(a, b);
    Vopc 0x4d v_cmp_neq_f32(a: f32, b: f32) -> bool = a != b;
    Vopc 0x4e v_cmp_nlt_f32(a: f32, b: f32) -> bool = a >= b || !ordered(a, b);
};

/// Of VOP2 with a clamp: such an opcode is listed 0x1000 higher.
pub(crate) const CLAMPED: u32 = 0x1000;

pub(super) static OPS: &[Op] = compute! {
    Vop1 0x01 v_mov_b32(a: u32) -> u32 = a;
    Vop1 0x05 v_cvt_f32_i32(a: i32) -> f32 = a as f32;
    Vop1 0x06 v_cvt_f32_u32(a: u32) -> f32 = a as f32;
    Vop1 0x07 v_cvt_u32_f32(a: f32) -> u32 = a as u32;
    Vop1 0x08 v_cvt_i32_f32(a: f32) -> i32 = a as i32;
    Vop1 0x11 v_cvt_f32_ubyte0(a: u32) -> f32 = (a & 0xff) as f32;
    Vop1 0x12 v_cvt_f32_ubyte1(a: u32) -> f32 = (a >> 8 & 0xff) as f32;
    Vop1 0x13 v_cvt_f32_ubyte2(a: u32) -> f32 = (a >> 16 & 0xff) as f32;
    Vop1 0x14 v_cvt_f32_ubyte3(a: u32) -> f32 = (a >> 24) as f32;
    Vop1 0x1b v_fract_f32(a: f32) -> f32 = fract(a);
    Vop1 0x1c v_trunc_f32(a: f32) -> f32 = a.trunc();
    Vop1 0x1d v_ceil_f32(a: f32) -> f32 = a.ceil();
    Vop1 0x1e v_rndne_f32(a: f32) -> f32 = a.round_ties_even();
    Vop1 0x1f v_floor_f32(a: f32) -> f32 = a.floor();
    Vop1 0x22 v_rcp_f32(a: f32) -> f32 = 1.0 / a;
    Vop1 0x23 v_rcp_iflag_f32(a: f32) -> f32 = 1.0 / a;
    Vop1 0x27 v_sqrt_f32(a: f32) -> f32 = a.sqrt();
    Vop1 0x2b v_not_b32(a: u32) -> u32 = !a;
    Vop1 0x2c v_bfrev_b32(a: u32) -> u32 = a.reverse_bits();
    Vop1 0x2d v_ffbh_u32(a: u32) -> u32 = first(a.leading_zeros(), 32);
    Vop1 0x2e v_ffbl_b32(a: u32) -> u32 = first(a.trailing_zeros(), 32);
    Vop1 0x52 v_accvgpr_mov_b32(a: u32) -> u32 = a;
    Vop2 0x00 v_cndmask_b32(a: u32, b: u32, c: bool) -> u32 = if c { b } else { a };
    Vop2 0x01 v_add_f32(a: f32, b: f32) -> f32 = a + b;
    Vop2 0x02 v_sub_f32(a: f32, b: f32) -> f32 = a - b;
    Vop2 0x03 v_subrev_f32(a: f32, b: f32) -> f32 = b - a;
    Vop2 0x05 v_mul_f32(a: f32, b: f32) -> f32 = a * b;
    Vop2 0x06 v_mul_i32_i24(a: u32, b: u32) -> i32 = i24(a).wrapping_mul(i24(b));
    Vop2 0x08 v_mul_u32_u24(a: u32, b: u32) -> u32 = u24(a).wrapping_mul(u24(b));
    Vop2 0x09 v_mul_hi_u32_u24(a: u32, b: u32) -> u32 = ((u64::from(u24(a)) * u64::from(u24(b))) >> 32) as u32;
    Vop2 0x0a v_min_f32(a: f32, b: f32) -> f32 = extreme(a, b, Ordering::Less);
    Vop2 0x0b v_max_f32(a: f32, b: f32) -> f32 = extreme(a, b, Ordering::Greater);
    Vop2 0x0c v_min_i32(a: i32, b: i32) -> i32 = a.min(b);
    Vop2 0x0d v_max_i32(a: i32, b: i32) -> i32 = a.max(b);
    Vop2 0x0e v_min_u32(a: u32, b: u32) -> u32 = a.min(b);
    Vop2 0x0f v_max_u32(a: u32, b: u32) -> u32 = a.max(b);
    Vop2 0x10 v_lshrrev_b32(a: u32, b: u32) -> u32 = b >> (a & 31);
    Vop2 0x11 v_ashrrev_i32(a: u32, b: i32) -> i32 = b >> (a & 31);
    Vop2 0x12 v_lshlrev_b32(a: u32, b: u32) -> u32 = b << (a & 31);
    Vop2 0x13 v_and_b32(a: u32, b: u32) -> u32 = a & b;
    Vop2 0x14 v_or_b32(a: u32, b: u32) -> u32 = a | b;
    Vop2 0x15 v_xor_b32(a: u32, b: u32) -> u32 = a ^ b;
    Vop2 0x19 v_add_co_u32(a: u32, b: u32) -> (u32, bool) = carry(a, b, false);
    Vop2 0x1a v_sub_co_u32(a: u32, b: u32) -> (u32, bool) = borrow(a, b, false);
    Vop2 0x1b v_subrev_co_u32(a: u32, b: u32) -> (u32, bool) = borrow(b, a, false);
    Vop2 0x1c v_addc_co_u32(a: u32, b: u32, c: bool) -> (u32, bool) = carry(a, b, c);
    Vop2 0x1d v_subb_co_u32(a: u32, b: u32, c: bool) -> (u32, bool) = borrow(a, b, c);
    Vop2 0x1e v_subbrev_co_u32(a: u32, b: u32, c: bool) -> (u32, bool) = borrow(b, a, c);
    Vop2 0x26 v_add_u16(a: u16, b: u16) -> u16 = a.wrapping_add(b);
    Vop2 0x27 v_sub_u16(a: u16, b: u16) -> u16 = a.wrapping_sub(b);
    Vop2 0x28 v_subrev_u16(a: u16, b: u16) -> u16 = b.wrapping_sub(a);
    Vop2 0x29 v_mul_lo_u16(a: u16, b: u16) -> u16 = a.wrapping_mul(b);
    Vop2 0x2a v_lshlrev_b16(a: u16, b: u16) -> u16 = b << (a & 15);
    Vop2 0x2b v_lshrrev_b16(a: u16, b: u16) -> u16 = b >> (a & 15);
    Vop2 0x2c v_ashrrev_i16(a: u16, b: i16) -> i16 = b >> (a & 15);
    Vop2 0x2f v_max_u16(a: u16, b: u16) -> u16 = a.max(b);
    Vop2 0x30 v_max_i16(a: i16, b: i16) -> i16 = a.max(b);
    Vop2 0x31 v_min_u16(a: u16, b: u16) -> u16 = a.min(b);
    Vop2 0x32 v_min_i16(a: i16, b: i16) -> i16 = a.min(b);
    Vop2 0x34 v_add_u32(a: u32, b: u32) -> u32 = a.wrapping_add(b);
    Vop2 0x35 v_sub_u32(a: u32, b: u32) -> u32 = a.wrapping_sub(b);
    Vop2 0x36 v_subrev_u32(a: u32, b: u32) -> u32 = b.wrapping_sub(a);
    Vop2 0x3b v_fmac_f32(a: f32, b: f32, to: f32) -> f32 = a.mul_add(b, to);
    Vop2 0x3d v_xnor_b32(a: u32, b: u32) -> u32 = !(a ^ b);
    Vop2 0x1026 v_add_u16(a: u16, b: u16) -> u16 = a.saturating_add(b);
    Vop2 0x1027 v_sub_u16(a: u16, b: u16) -> u16 = a.saturating_sub(b);
    Vop2 0x1034 v_add_u32(a: u32, b: u32) -> u32 = a.saturating_add(b);
    Vop2 0x1035 v_sub_u32(a: u32, b: u32) -> u32 = a.saturating_sub(b);
    Vop2 0x1036 v_subrev_u32(a: u32, b: u32) -> u32 = b.saturating_sub(a);
    Vop3 0x1c2 v_mad_i32_i24(a: u32, b: u32, c: i32) -> i32 = i24(a).wrapping_mul(i24(b)).wrapping_add(c);
    Vop3 0x1c3 v_mad_u32_u24(a: u32, b: u32, c: u32) -> u32 = u24(a).wrapping_mul(u24(b)).wrapping_add(c);
    Vop3 0x1c8 v_bfe_u32(a: u32, b: u32, c: u32) -> u32 = a >> (b & 31) & ((1 << (c & 31)) - 1);
    Vop3 0x1c9 v_bfe_i32(a: i32, b: u32, c: u32) -> i32 = if c & 31 == 0 { 0 } else { field(a >> (b & 31), c & 31) };
    Vop3 0x1ca v_bfi_b32(a: u32, b: u32, c: u32) -> u32 = a & b | !a & c;
    Vop3 0x1cb v_fma_f32(a: f32, b: f32, c: f32) -> f32 = a.mul_add(b, c);
    Vop3 0x1ce v_alignbit_b32(a: u32, b: u32, c: u32) -> u32 = ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32;
    Vop3 0x1cf v_alignbyte_b32(a: u32, b: u32, c: u32) -> u32 =
        ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32;
    Vop3 0x1d1 v_min3_i32(a: i32, b: i32, c: i32) -> i32 = a.min(b).min(c);
    Vop3 0x1d2 v_min3_u32(a: u32, b: u32, c: u32) -> u32 = a.min(b).min(c);
    Vop3 0x1d4 v_max3_i32(a: i32, b: i32, c: i32) -> i32 = a.max(b).max(c);
    Vop3 0x1d5 v_max3_u32(a: u32, b: u32, c: u32) -> u32 = a.max(b).max(c);
    Vop3 0x1d7 v_med3_i32(a: i32, b: i32, c: i32) -> i32 = a.min(b).max(a.max(b).min(c));
    Vop3 0x1d8 v_med3_u32(a: u32, b: u32, c: u32) -> u32 = a.min(b).max(a.max(b).min(c));
    Vop3 0x1de v_div_fixup_f32(a: f32, b: f32, c: f32) -> f32 = div_fixup(a, b, c);
    Vop3 0x1e0 v_div_scale_f32(a: f32, b: f32, c: f32) -> (f32, bool) = div_scale(a, b, c);
    Vop3 0x1e2 v_div_fmas_f32(a: f32, b: f32, c: f32, scaled: bool) -> f32 = div_fmas(a, b, c, scaled);
    Vop3 0x1e8 v_mad_u64_u32(a: u32, b: u32, c: u64) -> (u64, bool) = (u64::from(a) * u64::from(b)).overflowing_add(c);
    Vop3 0x1e9 v_mad_i64_i32(a: i32, b: i32, c: i64) -> (i64, bool) = mad_i64(a, b, c);
    Vop3 0x1eb v_mad_legacy_u16(a: u16, b: u16, c: u16) -> u16 = a.wrapping_mul(b).wrapping_add(c);
    Vop3 0x1ed v_perm_b32(a: u32, b: u32, c: u32) -> u32 = permute(a, b, c);
    Vop3 0x1f3 v_xad_u32(a: u32, b: u32, c: u32) -> u32 = (a ^ b).wrapping_add(c);
    Vop3 0x1fd v_lshl_add_u32(a: u32, b: u32, c: u32) -> u32 = (a << (b & 31)).wrapping_add(c);
    Vop3 0x1fe v_add_lshl_u32(a: u32, b: u32, c: u32) -> u32 = a.wrapping_add(b) << (c & 31);
    Vop3 0x1ff v_add3_u32(a: u32, b: u32, c: u32) -> u32 = a.wrapping_add(b).wrapping_add(c);
    Vop3 0x200 v_lshl_or_b32(a: u32, b: u32, c: u32) -> u32 = a << (b & 31) | c;
    Vop3 0x201 v_and_or_b32(a: u32, b: u32, c: u32) -> u32 = a & b | c;
    Vop3 0x202 v_or3_b32(a: u32, b: u32, c: u32) -> u32 = a | b | c;
    Vop3 0x285 v_mul_lo_u32(a: u32, b: u32) -> u32 = a.wrapping_mul(b);
    Vop3 0x286 v_mul_hi_u32(a: u32, b: u32) -> u32 = ((u64::from(a) * u64::from(b)) >> 32) as u32;
    Vop3 0x287 v_mul_hi_i32(a: i32, b: i32) -> i32 = ((i64::from(a) * i64::from(b)) >> 32) as i32;
    Vop3 0x288 v_ldexp_f32(a: f32, b: i32) -> f32 = scale(a, b.clamp(-300, 300));
    Vop3 0x28b v_bcnt_u32_b32(a: u32, b: u32) -> u32 = a.count_ones().wrapping_add(b);
    Vop3 0x28c v_mbcnt_lo_u32_b32(mask: u32, b: u32, lane: Lane) -> u32 =
        (mask & 1_u32.checked_shl(lane.0).unwrap_or(0).wrapping_sub(1)).count_ones().wrapping_add(b);
    Vop3 0x28d v_mbcnt_hi_u32_b32(mask: u32, b: u32, lane: Lane) -> u32 =
        (mask & ((1 << lane.0.saturating_sub(32)) - 1)).count_ones().wrapping_add(b);
    Vop3 0x28f v_lshlrev_b64(a: u32, b: u64) -> u64 = b << (a & 63);
    Vop3 0x290 v_lshrrev_b64(a: u32, b: u64) -> u64 = b >> (a & 63);
    Vop3 0x291 v_ashrrev_i64(a: u32, b: i64) -> i64 = b >> (a & 63);
    Vop3 0x293 v_bfm_b32(a: u32, b: u32) -> u32 = ((1 << (a & 31)) - 1) << (b & 31);
    Vop3p 0x30 v_pk_fma_f32(a: [f32; 2], b: [f32; 2], c: [f32; 2]) -> [f32; 2] =
        [a[0].mul_add(b[0], c[0]), a[1].mul_add(b[1], c[1])];
    Vop3p 0x31 v_pk_mul_f32(a: [f32; 2], b: [f32; 2]) -> [f32; 2] = [a[0] * b[0], a[1] * b[1]];
    Vop3p 0x32 v_pk_add_f32(a: [f32; 2], b: [f32; 2]) -> [f32; 2] = [a[0] + b[0], a[1] + b[1]];
    Vop3p 0x33 v_pk_mov_b32(a: [u32; 2], b: [u32; 2]) -> [u32; 2] = [a[0], b[0]];
    Vop3p 0x58 v_accvgpr_read_b32(a: u32) -> u32 = a;
    Vop3p 0x59 v_accvgpr_write_b32(a: u32) -> u32 = a;
};

#[rustfmt::skip]
pub(super) static GFX942: &[Op] = compute! {
    Vop1 0x38 v_mov_b64(a: u64) -> u64 = a;
    Vop2 0x17 v_fmamk_f32(a: f32, k: f32, b: f32) -> f32 = a.mul_add(k, b);
    Vop2 0x18 v_fmaak_f32(a: f32, b: f32, k: f32) -> f32 = a.mul_add(b, k);
    Vop3 0x208 v_lshl_add_u64(a: u64, b: u32, c: u64) -> u64 = (a << (b & 7)).wrapping_add(c);
};

/// A product that is rounded before it is added to, and no denormal number anywhere, whatever the mode says.
fn mad(a: f32, b: f32, c: f32) -> f32 {
    let flush = |value: f32| if value.is_subnormal() { 0.0_f32.copysign(value) } else { value };
    flush(flush(flush(a) * flush(b)) + flush(c))
}

#[rustfmt::skip]
pub(super) static GFX90A: &[Op] = compute! {
    Vop2 0x16 v_mac_f32(a: f32, b: f32, to: f32) -> f32 = mad(a, b, to);
    Vop2 0x17 v_madmk_f32(a: f32, k: f32, b: f32) -> f32 = mad(a, k, b);
    Vop2 0x18 v_madak_f32(a: f32, b: f32, k: f32) -> f32 = mad(a, b, k);
    Vop3 0x1c1 v_mad_f32(a: f32, b: f32, c: f32) -> f32 = mad(a, b, c);
};

/// `width` bits, 1 to 31, with their sign.
fn field(value: i32, width: u32) -> i32 {
    value << (32 - width) >> (32 - width)
}

fn read_first_lane(wave: &mut Wave, inst: &Inst) {
    let lane = wave.exec().trailing_zeros() & 63;
    wave.write32(inst.dst, wave.lane(inst.src[0], lane as usize));
}
fn read_lane(wave: &mut Wave, inst: &Inst) {
    let lane = wave.scalar(inst.src[1]) & 63;
    wave.write32(inst.dst, wave.lane(inst.src[0], lane as usize));
}
fn swap(wave: &mut Wave, inst: &Inst) {
    let exec = wave.exec();
    for lane in (0..64).filter(|lane| exec >> lane & 1 != 0) {
        let (a, b) = (wave.lane(inst.dst, lane), wave.lane(inst.src[0], lane));
        wave.set_lane(inst.dst, lane, b);
        wave.set_lane(inst.src[0], lane, a);
    }
}
fn write_lane(wave: &mut Wave, inst: &Inst) {
    let (value, lane) = (wave.scalar(inst.src[0]), wave.scalar(inst.src[1]) & 63);
    wave.set_lane(inst.dst, lane as usize, value);
}

pub(super) static CROSS: &[Op] = &[
    special(Vop1, 0x00, "v_nop", None, &[], Run::Nothing),
    special(Vop1, 0x02, "v_readfirstlane_b32", B32, &[B32], Run::Wave(read_first_lane)),
    special(Vop1, 0x51, "v_swap_b32", B32, &[B32], Run::Wave(swap)),
    special(Vop3, 0x289, "v_readlane_b32", B32, &[B32, B32], Run::Wave(read_lane)),
    special(Vop3, 0x28a, "v_writelane_b32", B32, &[B32, B32], Run::Wave(write_lane)),
];
