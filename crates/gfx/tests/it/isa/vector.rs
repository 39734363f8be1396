//! VOP1, VOP2, VOPC, VOP3, VOP3P, SDWA, and what lanes give each other.
use super::model::*;
use super::{Case, Row, cases};
use std::cmp::Ordering;
use warpverbs_gfx::Target;

/// A sum of two numbers of 32 bits, with its carry.
fn carry(sum: i128) -> Out {
    w32(sum).flag(sum >> 32 != 0)
}

#[rustfmt::skip]
fn integers() -> Vec<Case> {
    cases! {
        "v_add_u32 d, a, b" [a b] w32(u32_(a) + u32_(b));
        "v_sub_u32 d, a, b" [a b] w32(u32_(a) - u32_(b));
        "v_subrev_u32 d, a, b" [a b] w32(u32_(b) - u32_(a));
        "v_add_u32_e64 d, a, b clamp" [a b] w32((u32_(a) + u32_(b)).min(0xffff_ffff));
        "v_sub_u32_e64 d, a, b clamp" [a b] w32((u32_(a) - u32_(b)).max(0));
        "v_subrev_u32_e64 d, a, b clamp" [a b] w32((u32_(b) - u32_(a)).max(0));
        "v_add_u16_e64 d, a, b clamp" [a b] w16((u16_(a) + u16_(b)).min(0xffff));
        "v_sub_u16_e64 d, a, b clamp" [a b] w16((u16_(a) - u16_(b)).max(0));
        "v_add_co_u32 d, vcc, a, b" [a b] carry(u32_(a) + u32_(b));
        "v_add_co_u32_e64 d, s[20:21], a, b\ns_mov_b64 vcc, s[20:21]" [a b] carry(u32_(a) + u32_(b));
        "v_sub_co_u32 d, vcc, a, b" [a b] carry(u32_(a) - u32_(b));
        "v_subrev_co_u32 d, vcc, a, b" [a b] carry(u32_(b) - u32_(a));
        "v_addc_co_u32 d, vcc, a, b, vcc" [a b flag] carry(u32_(a) + u32_(b) + i128::from(flag));
        "v_subb_co_u32 d, vcc, a, b, vcc" [a b flag] carry(u32_(a) - u32_(b) - i128::from(flag));
        "v_subbrev_co_u32 d, vcc, a, b, vcc" [a b flag] carry(u32_(b) - u32_(a) - i128::from(flag));
        "v_add_u16 d, a, b" [a b] w16(u16_(a) + u16_(b));
        "v_sub_u16 d, a, b" [a b] w16(u16_(a) - u16_(b));
        "v_subrev_u16 d, a, b" [a b] w16(u16_(b) - u16_(a));
        "v_mul_lo_u16 d, a, b" [a b] w16(u16_(a) * u16_(b));
        "v_min_u16 d, a, b" [a b] w16(u16_(a).min(u16_(b)));
        "v_max_u16 d, a, b" [a b] w16(u16_(a).max(u16_(b)));
        "v_min_i16 d, a, b" [a b] w16(i16_(a).min(i16_(b)));
        "v_max_i16 d, a, b" [a b] w16(i16_(a).max(i16_(b)));
        "v_min_u32 d, a, b" [a b] w32(u32_(a).min(u32_(b)));
        "v_max_u32 d, a, b" [a b] w32(u32_(a).max(u32_(b)));
        "v_min_i32 d, a, b" [a b] w32(i32_(a).min(i32_(b)));
        "v_max_i32 d, a, b" [a b] w32(i32_(a).max(i32_(b)));
        "v_min3_i32 d, a, b, c" [a b c] w32(sorted(i32_, [a, b, c])[0]);
        "v_min3_u32 d, a, b, c" [a b c] w32(sorted(u32_, [a, b, c])[0]);
        "v_max3_i32 d, a, b, c" [a b c] w32(sorted(i32_, [a, b, c])[2]);
        "v_max3_u32 d, a, b, c" [a b c] w32(sorted(u32_, [a, b, c])[2]);
        "v_med3_i32 d, a, b, c" [a b c] w32(sorted(i32_, [a, b, c])[1]);
        "v_med3_u32 d, a, b, c" [a b c] w32(sorted(u32_, [a, b, c])[1]);
        "v_mul_i32_i24 d, a, b" [a b] w32(i24_(a) * i24_(b));
        "v_mul_u32_u24 d, a, b" [a b] w32(u24_(a) * u24_(b));
        "v_mul_hi_u32_u24 d, a, b" [a b] w32((u24_(a) * u24_(b)) >> 32);
        "v_mad_i32_i24 d, a, b, c" [a b c] w32(i24_(a) * i24_(b) + i32_(c));
        "v_mad_u32_u24 d, a, b, c" [a b c] w32(u24_(a) * u24_(b) + u32_(c));
        "v_mad_legacy_u16 d, a, b, c" [a b c] w16(u16_(a) * u16_(b) + u16_(c));
        "v_mad_u64_u32 dd, vcc, a, b, cc" [a b c] product(u32_(a) * u32_(b) + u64_(c));
        "v_mad_i64_i32 dd, vcc, a, b, cc" [a b c] product(i32_(a) * i32_(b) + i64_(c));
        "v_mul_lo_u32 d, a, b" [a b] w32(u32_(a) * u32_(b));
        "v_mul_hi_u32 d, a, b" [a b] w32((u32_(a) * u32_(b)) >> 32);
        "v_mul_hi_i32 d, a, b" [a b] w32((i32_(a) * i32_(b)) >> 32);
        "v_xad_u32 d, a, b, c" [a b c] w32(u32_(a ^ b) + u32_(c));
        "v_lshl_add_u32 d, a, b, c" [a b c] w32((u32_(a) << low(b, 5)) + u32_(c));
        "v_add_lshl_u32 d, a, b, c" [a b c] w32((u32_(a) + u32_(b)) << low(c, 5));
        "v_add3_u32 d, a, b, c" [a b c] w32(u32_(a) + u32_(b) + u32_(c));
    }
}

/// The flag is the 65th bit.
fn product(value: i128) -> Out {
    w64(value).flag(value >> 64 & 1 != 0)
}

fn sorted(of: fn(u64) -> i128, words: [u64; 3]) -> [i128; 3] {
    let mut values = words.map(of);
    values.sort_unstable();
    values
}

/// The byte that a selector names.
fn byte(a: u64, b: u64, select: u32) -> i128 {
    let byte = |index: u32| u32_(if index < 4 { b } else { a }) >> (8 * (index % 4)) & 0xff;
    match select {
        0..=7 => byte(select),
        8..=11 => 0xff * (byte(2 * (select - 8) + 1) >> 7),
        12 => 0,
        _ => 0xff,
    }
}

#[rustfmt::skip]
fn bits_() -> Vec<Case> {
    cases! {
        "v_mov_b32 d, a" [a] w32(u32_(a));
        "v_swap_b32 d, a\nv_sub_u32 d, d, a" [a c] w32(u32_(a) - u32_(c));
        "v_accvgpr_write_b32 a3, a\nv_accvgpr_mov_b32 a5, a3\nv_accvgpr_read_b32 d, a5" [a] w32(u32_(a));
        "v_not_b32 d, a" [a] w32(u32_(!a));
        "v_bfrev_b32 d, a" [a] w32(mirrored(a, 32));
        "v_ffbh_u32 d, a" [a] w32(first(a, 32, |index| 31 - index));
        "v_ffbl_b32 d, a" [a] w32(first(a, 32, |index| index));
        "v_cndmask_b32 d, a, b, vcc" [a b flag] w32(u32_(if flag { b } else { a }));
        "v_cndmask_b32_e64 d, a, b, vcc" [a b flag] w32(u32_(if flag { b } else { a }));
        "v_and_b32 d, a, b" [a b] w32(u32_(a & b));
        "v_or_b32 d, a, b" [a b] w32(u32_(a | b));
        "v_xor_b32 d, a, b" [a b] w32(u32_(a ^ b));
        "v_xnor_b32 d, a, b" [a b] w32(u32_(!(a ^ b)));
        "v_lshrrev_b32 d, a, b" [a b] w32(u32_(b) >> low(a, 5));
        "v_ashrrev_i32 d, a, b" [a b] w32(i32_(b) >> low(a, 5));
        "v_lshlrev_b32 d, a, b" [a b] w32(u32_(b) << low(a, 5));
        "v_lshrrev_b16 d, a, b" [a b] w16(u16_(b) >> low(a, 4));
        "v_ashrrev_i16 d, a, b" [a b] w16(i16_(b) >> low(a, 4));
        "v_lshlrev_b16 d, a, b" [a b] w16(u16_(b) << low(a, 4));
        "v_lshlrev_b64 dd, a, bb" [a b] w64(u64_(b) << low(a, 6));
        "v_lshrrev_b64 dd, a, bb" [a b] w64(u64_(b) >> low(a, 6));
        "v_ashrrev_i64 dd, a, bb" [a b] w64(i64_(b) >> low(a, 6));
        "v_bfe_u32 d, a, b, c" [a b c] w32(u32_(a) >> low(b, 5) & ((1 << low(c, 5)) - 1));
        "v_bfe_i32 d, a, b, c" [a b c] w32(if low(c, 5) == 0 { 0 } else { signed((i32_(a) >> low(b, 5)) as u64, low(c, 5)) });
        "v_bfi_b32 d, a, b, c" [a b c] w32(u32_(a & b | !a & c));
        "v_bfm_b32 d, a, b" [a b] w32(((1 << low(a, 5)) - 1) << low(b, 5));
        "v_alignbit_b32 d, a, b, c" [a b c] w32(((u32_(a) << 32) + u32_(b)) >> low(c, 5));
        "v_alignbyte_b32 d, a, b, c" [a b c] w32(((u32_(a) << 32) + u32_(b)) >> (8 * low(c, 2)));
        "v_perm_b32 d, a, b, c" [a b c] w32((0..4).map(|at| byte(a, b, low(c >> (8 * at), 8)) << (8 * at)).sum());
        "v_lshl_or_b32 d, a, b, c" [a b c] w32(u32_(a) << low(b, 5) | u32_(c));
        "v_and_or_b32 d, a, b, c" [a b c] w32(u32_(a & b | c));
        "v_or3_b32 d, a, b, c" [a b c] w32(u32_(a | b | c));
        "v_bcnt_u32_b32 d, a, b" [a b] w32(ones(a, 32) + u32_(b));
        "v_pk_mov_b32 dd, aa, bb op_sel:[0,1]" [a b] w64(u32_(a) + (u32_(b >> 32) << 32));
        "v_pk_mov_b32 dd, aa, bb op_sel:[1,0]" [a b] w64(u32_(a >> 32) + (u32_(b) << 32));
    }
}

/// Parts of registers.
#[rustfmt::skip]
fn parts() -> Vec<Case> {
    cases! {
        "v_add_u32_sdwa d, a, b dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3 src1_sel:WORD_1" [a b c]
            w32(u32_(c & !0xff00) + ((u32_((a >> 24 & 0xff) + (b >> 16 & 0xffff)) % 256) << 8));
        "v_sub_u32_sdwa d, sext(a), b dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:BYTE_0 src1_sel:DWORD" [a b]
            w32(i16_((signed(a, 8) - u32_(b)) as u64));
        "v_sub_u32_sdwa d, a, sext(b) dst_sel:BYTE_2 dst_unused:UNUSED_SEXT src0_sel:DWORD src1_sel:WORD_1" [a b]
            w32(signed((u32_(a) - i16_(b >> 16)) as u64, 8) << 16);
        "v_mov_b32_sdwa d, a dst_sel:BYTE_3 dst_unused:UNUSED_PAD src0_sel:BYTE_2" [a] w32(i128::from(a >> 16 & 0xff) << 24);
        "v_lshlrev_b32_sdwa d, a, b dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_0" [a b]
            w32(u16_(b) << low(a >> 8, 5));
        "v_add_f32_sdwa d, |a|, -b dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD" [a b]
            float(f32_(a).abs() - f32_(b));
        "v_cmp_lt_i32_sdwa vcc, sext(a), sext(b) src0_sel:WORD_1 src1_sel:BYTE_2" [a b]
            only(i16_(a >> 16) < signed(b >> 16, 8));
        "v_cmp_ge_u32_sdwa vcc, a, b src0_sel:BYTE_0 src1_sel:BYTE_0" [a b] only(a % 256 >= b % 256);
    }
}

/// 2 to the power of `exponent`.
fn power(exponent: i32) -> f64 {
    2.0_f64.powi(exponent)
}
fn exponent(a: u64) -> i32 {
    low(a >> 23, 8) as i32
}
/// To an integer between these, towards 0; 0 of no number.
fn integer(a: f64, least: i128, most: i128) -> Out {
    w32(if a.is_nan() { 0 } else { (a.trunc() as i128).clamp(least, most) })
}
/// The lower or the higher one, of which -0 is below 0; the other one of a NaN, but nothing of a signalling one.
fn extreme(a: u64, b: u64, wanted: Ordering) -> Out {
    let signalling = |word: u64| f32_(word).is_nan() && word >> 22 & 1 == 0;
    let (x, y) = (f32_(a), f32_(b));
    let order =
        x.partial_cmp(&y).map(|order| order.then(y.is_sign_negative().cmp(&x.is_sign_negative())));
    float(match order {
        None if signalling(a) || signalling(b) => f64::NAN,
        None if x.is_nan() => y,
        None => x,
        Some(order) if order == wanted => x,
        Some(_) => y,
    })
}
fn rounded(a: f64) -> f64 {
    let up = (a + 0.5).floor();
    let is_tie = a - a.floor() == 0.5 && a.floor() % 2.0 == 0.0;
    (if is_tie { up - 1.0 } else { up }).copysign(a)
}
/// See the exceptions in the description of the test.
fn fraction(a: f64) -> f64 {
    let rest = f64::from((a - a.floor()) as f32);
    if rest == 1.0 { 1.0 - power(-24) } else { rest }
}

#[rustfmt::skip]
fn floats() -> Vec<Case> {
    cases! {
        "v_cvt_f32_i32 d, a" [a] float(i32_(a) as f64);
        "v_cvt_f32_u32 d, a" [a] float(u32_(a) as f64);
        "v_cvt_u32_f32 d, a" [a] integer(f32_(a), 0, 0xffff_ffff);
        "v_cvt_i32_f32 d, a" [a] integer(f32_(a), -0x8000_0000, 0x7fff_ffff);
        "v_cvt_f32_ubyte0 d, a" [a] float(low(a, 8).into());
        "v_cvt_f32_ubyte1 d, a" [a] float(low(a >> 8, 8).into());
        "v_cvt_f32_ubyte2 d, a" [a] float(low(a >> 16, 8).into());
        "v_cvt_f32_ubyte3 d, a" [a] float(low(a >> 24, 8).into());
        "v_fract_f32 d, a" [a] float(fraction(f32_(a)));
        "v_trunc_f32 d, a" [a] float(f32_(a).trunc());
        "v_ceil_f32 d, a" [a] float(f32_(a).ceil());
        "v_floor_f32 d, a" [a] float(f32_(a).floor());
        "v_rndne_f32 d, a" [a] float(rounded(f32_(a)));
        "v_rcp_f32 d, a" [a] float(1.0 / f32_(a));
        "v_rcp_iflag_f32 d, a" [a] float(1.0 / f32_(a));
        "v_sqrt_f32 d, a" [a] float(f32_(a).sqrt());
        "v_add_f32 d, a, b" [a b] float(f32_(a) + f32_(b));
        "v_sub_f32 d, a, b" [a b] float(f32_(a) - f32_(b));
        "v_subrev_f32 d, a, b" [a b] float(f32_(b) - f32_(a));
        "v_mul_f32 d, a, b" [a b] float(f32_(a) * f32_(b));
        "v_mul_f32_e64 d, -|a|, -b" [a b] float(-f32_(a).abs() * -f32_(b));
        "v_min_f32 d, a, b" [a b] extreme(a, b, Ordering::Less);
        "v_max_f32 d, a, b" [a b] extreme(a, b, Ordering::Greater);
        "v_fma_f32 d, a, b, c" [a b c] float(fma(f32_(a), f32_(b), f32_(c)));
        "v_fma_f32 d, -a, |b|, -|c|" [a b c] float(fma(-f32_(a), f32_(b).abs(), -f32_(c).abs()));
        "v_fmac_f32 d, a, b" [a b c] float(fma(f32_(a), f32_(b), f32_(c)));
        "v_ldexp_f32 d, a, b" [a b] float(f32_(a) * power(i32_(b).clamp(-600, 600) as i32));
        "v_div_scale_f32 d, vcc, b, b, c" [b c] scaled(b, b, c);
        "v_div_scale_f32 d, vcc, c, b, c" [b c] scaled(c, b, c);
        "v_div_scale_f32 d, vcc, a, b, c" [a b c] scaled(a, b, c);
        "v_div_fmas_f32 d, a, b, c" [a b c flag] float(fma(f32_(a), f32_(b), f32_(c))
            * if !flag { 1.0 } else if exponent(c) > 127 { power(64) } else { power(-64) });
        "v_div_fixup_f32 d, a, b, c" [a b c] fixed(a, b, c);
        "v_pk_fma_f32 dd, aa, bb, cc" [a b c] pair(fma(f32_(a), f32_(b), f32_(c)), fma(f32_(a >> 32), f32_(b >> 32), f32_(c >> 32)));
        "v_pk_mul_f32 dd, aa, bb" [a b] pair(f32_(a) * f32_(b), f32_(a >> 32) * f32_(b >> 32));
        "v_pk_add_f32 dd, aa, bb" [a b] pair(f32_(a) + f32_(b), f32_(a >> 32) + f32_(b >> 32));
        "v_pk_add_f32 dd, aa, bb op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0] neg_hi:[0,1]" [a b]
            pair(-f32_(a >> 32) + f32_(b), f32_(a) - f32_(b >> 32));
    }
}

/// `v_div_scale_f32` of a value, a denominator and a numerator.
fn scaled(value: u64, denominator: u64, numerator: u64) -> Out {
    let (v, d, n) = (f32_(value), f32_(denominator), f32_(numerator));
    let denormal = |value: f64| (value as f32).is_subnormal();
    let scaled = |by: i32| float(v * power(by));
    let only_if = |holds: bool, by: i32| if holds { scaled(by) } else { float(v) };
    if n == 0.0 || d == 0.0 {
        return float(f64::NAN).flag(false);
    }
    if exponent(numerator) - exponent(denominator) >= 96 {
        return only_if(v == d, 64).flag(true);
    }
    match (denormal(d), denormal(1.0 / d), denormal(n / d)) {
        (true, ..) => scaled(64).flag(false),
        (_, true, true) => only_if(v == d, -64).flag(true),
        (_, true, false) => scaled(-64).flag(false),
        (_, false, true) => only_if(v == n, 64).flag(true),
        _ => only_if(exponent(numerator) <= 23, 64).flag(false),
    }
}

/// `v_div_fixup_f32` of a quotient, a denominator and a numerator.
fn fixed(quotient: u64, denominator: u64, numerator: u64) -> Out {
    let (q, d, n) = (f32_(quotient), f32_(denominator), f32_(numerator));
    let sign = if (denominator ^ numerator) >> 31 & 1 == 0 { 1.0 } else { -1.0 };
    float(match (d.abs(), n.abs()) {
        (d, n) if d.is_nan() || n.is_nan() => f64::NAN,
        (0.0, 0.0) | (f64::INFINITY, f64::INFINITY) => f64::NAN,
        (0.0, _) | (_, f64::INFINITY) => f64::INFINITY * sign,
        (f64::INFINITY, _) | (_, 0.0) => 0.0 * sign,
        _ if exponent(numerator) - exponent(denominator) < -150 => 0.0 * sign,
        _ if q.is_nan() => f64::INFINITY * sign,
        _ => q.abs() * sign,
    })
}

/// Comparisons: of integers by the outcomes for which they hold, of floats also with the outcome of a NaN.
fn comparisons() -> Vec<Case> {
    let mut all = Vec::new();
    let kinds: [(&str, Number); 6] =
        [("i16", i16_), ("u16", u16_), ("i32", i32_), ("u32", u32_), ("i64", i64_), ("u64", u64_)];
    for (kind, of) in kinds {
        let operands = if kind.ends_with("64") { "aa, bb" } else { "a, b" };
        for (name, holds) in COMPARISONS {
            let name = if name == "lg" { "ne" } else { name };
            let text = format!("v_cmp_{name}_{kind} vcc, {operands}");
            let model: super::Model =
                Box::new(move |wave, lane| only(holds(of(wave[lane].a).cmp(&of(wave[lane].b)))));
            all.push(Case { text, model });
        }
    }
    // Whether less, equal, greater, or a NaN among them.
    let holds = [
        ("lt", "l"),
        ("eq", "e"),
        ("le", "le"),
        ("gt", "g"),
        ("lg", "lg"),
        ("ge", "ge"),
        ("o", "leg"),
        ("u", "n"),
        ("nge", "ln"),
        ("nlg", "en"),
        ("ngt", "len"),
        ("nle", "gn"),
        ("neq", "lgn"),
        ("nlt", "egn"),
    ];
    for (name, outcomes) in holds {
        let model: super::Model = Box::new(move |wave, lane| {
            let outcome = match f32_(wave[lane].a).partial_cmp(&f32_(wave[lane].b)) {
                Some(Ordering::Less) => 'l',
                Some(Ordering::Equal) => 'e',
                Some(Ordering::Greater) => 'g',
                None => 'n',
            };
            only(outcomes.contains(outcome))
        });
        all.push(Case { text: format!("v_cmp_{name}_f32 vcc, a, b"), model });
    }
    all
}

/// Every third lane is active.
const THIRDS: &str = "s_mov_b32 exec_lo, 0x49249249\ns_mov_b32 exec_hi, 0x92492492\n";
fn is_third(lane: usize) -> bool {
    lane.is_multiple_of(3)
}

/// The lane that an address of `ds_permute_b32` names.
fn named(row: &Row, offset: u64) -> usize {
    ((row.a & 0xffff_ffff) + offset) as usize / 4 % 64
}

/// Takes from a lane: 0 from one that is not active.
fn taken(wave: &[Row], lane: usize, offset: u64, active: fn(usize) -> bool) -> Out {
    let from = named(&wave[lane], offset);
    match (active(lane), active(from)) {
        (false, _) => Out::default(),
        (true, true) => w32(u32_(wave[from].b)),
        (true, false) => w32(0),
    }
}

/// Is given by the last lane that names this one.
fn given(wave: &[Row], lane: usize, active: fn(usize) -> bool) -> Out {
    let from = (0..64).rev().find(|&from| active(from) && named(&wave[from], 0) == lane);
    let value = from.map_or(0, |from| u32_(wave[from].b));
    if active(lane) { w32(value) } else { Out::default() }
}

/// Bits of `a` for the lanes below this one, of the half that begins with lane `first`.
fn below(row: &Row, lane: usize, first: usize) -> Out {
    let bits = lane.saturating_sub(first).min(32) as u32;
    w32(ones(row.a, bits) + u32_(row.b))
}

fn lanes() -> Vec<Case> {
    let case = |text: &str, model: super::Model| Case { text: text.into(), model };
    let third = |text: &str, model: super::Model| Case { text: THIRDS.to_owned() + text, model };
    let from = |lane: usize| -> super::Model { Box::new(move |wave, _| w32(u32_(wave[lane].a))) };
    vec![
        case("v_mbcnt_lo_u32_b32 d, a, b", Box::new(|wave, lane| below(&wave[lane], lane, 0))),
        case("v_mbcnt_hi_u32_b32 d, a, b", Box::new(|wave, lane| below(&wave[lane], lane, 32))),
        case("v_readfirstlane_b32 s20, a\nv_mov_b32 d, s20", from(0)),
        case(
            "s_mov_b32 exec_lo, 0\ns_mov_b32 exec_hi, 0xf0\nv_readfirstlane_b32 s20, a\ns_mov_b64 exec, -1\n\
             v_mov_b32 d, s20",
            from(36),
        ),
        case(
            "s_mov_b64 exec, 0\nv_readfirstlane_b32 s20, a\ns_mov_b64 exec, -1\nv_mov_b32 d, s20",
            from(0),
        ),
        case("v_readlane_b32 s20, a, 37\nv_mov_b32 d, s20", from(37)),
        case("s_movk_i32 s21, 0x65\nv_readlane_b32 s20, a, s21\nv_mov_b32 d, s20", from(37)),
        third(
            "s_movk_i32 s21, 0x44\nv_writelane_b32 d, 52, s21",
            Box::new(|_, lane| if lane == 4 { w32(52) } else { Out::default() }),
        ),
        third(
            "v_add_u32 d, a, b",
            Box::new(|wave, lane| match is_third(lane) {
                true => w32(u32_(wave[lane].a) + u32_(wave[lane].b)),
                false => Out::default(),
            }),
        ),
        third(
            "v_cmp_lt_u32 vcc, a, b",
            Box::new(|wave, lane| only(is_third(lane) && u32_(wave[lane].a) < u32_(wave[lane].b))),
        ),
        case("ds_bpermute_b32 d, a, b", Box::new(|wave, lane| taken(wave, lane, 0, |_| true))),
        case(
            "ds_bpermute_b32 d, a, b offset:20",
            Box::new(|wave, lane| taken(wave, lane, 20, |_| true)),
        ),
        third("ds_bpermute_b32 d, a, b", Box::new(|wave, lane| taken(wave, lane, 0, is_third))),
        case("ds_permute_b32 d, a, b", Box::new(|wave, lane| given(wave, lane, |_| true))),
        third("ds_permute_b32 d, a, b", Box::new(|wave, lane| given(wave, lane, is_third))),
    ]
}

/// A product, rounded, and a sum; denormal numbers are zeros throughout.
fn flushed(a: f64, b: f64, c: f64) -> Out {
    let flush = |value: f64| {
        let value = value as f32;
        f64::from(if value.is_subnormal() { 0.0_f32.copysign(value) } else { value })
    };
    float(flush(flush(flush(a) * flush(b)) + flush(c)))
}

/// Opcodes of one target.
#[rustfmt::skip]
fn own(target: Target) -> Vec<Case> {
    match target {
        Target::Gfx90a => cases! {
            "v_mac_f32 d, a, b" [a b c] flushed(f32_(a), f32_(b), f32_(c));
            "v_mad_f32 d, a, b, c" [a b c] flushed(f32_(a), f32_(b), f32_(c));
            "v_madmk_f32 d, a, 0x40490fdb, b" [a b] flushed(f32_(a), f32_(0x4049_0fdb), f32_(b));
            "v_madak_f32 d, a, b, 0x40490fdb" [a b] flushed(f32_(a), f32_(b), f32_(0x4049_0fdb));
        },
        Target::Gfx942 => cases! {
            "v_mov_b64 dd, aa" [a] w64(u64_(a));
            "v_fmamk_f32 d, a, 0x40490fdb, b" [a b] float(fma(f32_(a), f32_(0x4049_0fdb), f32_(b)));
            "v_fmaak_f32 d, a, b, 0x40490fdb" [a b] float(fma(f32_(a), f32_(b), f32_(0x4049_0fdb)));
            "v_lshl_add_u64 dd, aa, b, cc" [a b c] w64((u64_(a) << low(b, 3)) + u64_(c));
        },
    }
}

pub(super) fn cases(target: Target) -> Vec<Case> {
    let all = [integers(), bits_(), parts(), floats(), comparisons(), lanes(), own(target)];
    all.into_iter().flatten().collect()
}
