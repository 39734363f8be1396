//! SOP1, SOP2, SOPC, SOPK, and what sets the program counter and EXEC.
use super::model::*;
use super::{Case, cases};

/// A sum of two numbers of 32 bits, with its carry.
fn carry(sum: i128) -> Out {
    w32(sum).flag(sum >> 32 != 0)
}
/// With the flag of a number that 32 bits do not hold with its sign.
fn overflow(value: i128) -> Out {
    w32(value).flag(value != i32_(value as u64))
}
/// A field of `width` bits from `offset` on.
fn field(value: i128, offset: u32, width: u32) -> i128 {
    value >> offset & ((1_u128 << width) - 1) as i128
}

#[rustfmt::skip]
fn arithmetic() -> Vec<Case> {
    cases! {
        "s_add_u32 d, a, b" [a b] carry(u32_(a) + u32_(b));
        "s_addc_u32 d, a, b" [a b flag] carry(u32_(a) + u32_(b) + i128::from(flag));
        "s_sub_u32 d, a, b" [a b] carry(u32_(a) - u32_(b));
        "s_subb_u32 d, a, b" [a b flag] carry(u32_(a) - u32_(b) - i128::from(flag));
        "s_add_i32 d, a, b" [a b] overflow(i32_(a) + i32_(b));
        "s_sub_i32 d, a, b" [a b] overflow(i32_(a) - i32_(b));
        "s_min_i32 d, a, b" [a b] w32(i32_(a).min(i32_(b))).flag(i32_(a) < i32_(b));
        "s_min_u32 d, a, b" [a b] w32(u32_(a).min(u32_(b))).flag(u32_(a) < u32_(b));
        "s_max_i32 d, a, b" [a b] w32(i32_(a).max(i32_(b))).flag(i32_(a) >= i32_(b));
        "s_max_u32 d, a, b" [a b] w32(u32_(a).max(u32_(b))).flag(u32_(a) >= u32_(b));
        "s_cselect_b32 d, a, b" [a b flag] w32(u32_(if flag { a } else { b }));
        "s_cselect_b64 dd, aa, bb" [a b flag] w64(u64_(if flag { a } else { b }));
        "s_mul_i32 d, a, b" [a b] w32(i32_(a) * i32_(b));
        "s_mul_hi_u32 d, a, b" [a b] w32((u32_(a) * u32_(b)) >> 32);
        "s_mul_hi_i32 d, a, b" [a b] w32((i32_(a) * i32_(b)) >> 32);
        "s_lshl1_add_u32 d, a, b" [a b] carry(2 * u32_(a) + u32_(b));
        "s_lshl2_add_u32 d, a, b" [a b] carry(4 * u32_(a) + u32_(b));
        "s_lshl3_add_u32 d, a, b" [a b] carry(8 * u32_(a) + u32_(b));
        "s_lshl4_add_u32 d, a, b" [a b] carry(16 * u32_(a) + u32_(b));
        "s_abs_i32 d, a" [a] w32(i32_(a).abs()).nonzero();
        "s_sext_i32_i8 d, a" [a] w32(signed(a, 8));
        "s_sext_i32_i16 d, a" [a] w32(i16_(a));
    }
}

#[rustfmt::skip]
fn words() -> Vec<Case> {
    cases! {
        "s_and_b32 d, a, b" [a b] w32(u32_(a & b)).nonzero();
        "s_and_b64 dd, aa, bb" [a b] w64(u64_(a & b)).nonzero();
        "s_or_b32 d, a, b" [a b] w32(u32_(a | b)).nonzero();
        "s_or_b64 dd, aa, bb" [a b] w64(u64_(a | b)).nonzero();
        "s_xor_b32 d, a, b" [a b] w32(u32_(a ^ b)).nonzero();
        "s_xor_b64 dd, aa, bb" [a b] w64(u64_(a ^ b)).nonzero();
        "s_andn2_b32 d, a, b" [a b] w32(u32_(a & !b)).nonzero();
        "s_andn2_b64 dd, aa, bb" [a b] w64(u64_(a & !b)).nonzero();
        "s_orn2_b32 d, a, b" [a b] w32(u32_(a | !b)).nonzero();
        "s_orn2_b64 dd, aa, bb" [a b] w64(u64_(a | !b)).nonzero();
        "s_nand_b32 d, a, b" [a b] w32(u32_(!(a & b))).nonzero();
        "s_nand_b64 dd, aa, bb" [a b] w64(u64_(!(a & b))).nonzero();
        "s_nor_b32 d, a, b" [a b] w32(u32_(!(a | b))).nonzero();
        "s_nor_b64 dd, aa, bb" [a b] w64(u64_(!(a | b))).nonzero();
        "s_xnor_b32 d, a, b" [a b] w32(u32_(!(a ^ b))).nonzero();
        "s_xnor_b64 dd, aa, bb" [a b] w64(u64_(!(a ^ b))).nonzero();
        "s_lshl_b32 d, a, b" [a b] w32(u32_(a) << low(b, 5)).nonzero();
        "s_lshl_b64 dd, aa, b" [a b] w64(u64_(a) << low(b, 6)).nonzero();
        "s_lshr_b32 d, a, b" [a b] w32(u32_(a) >> low(b, 5)).nonzero();
        "s_lshr_b64 dd, aa, b" [a b] w64(u64_(a) >> low(b, 6)).nonzero();
        "s_ashr_i32 d, a, b" [a b] w32(i32_(a) >> low(b, 5)).nonzero();
        "s_ashr_i64 dd, aa, b" [a b] w64(i64_(a) >> low(b, 6)).nonzero();
        "s_bfm_b32 d, a, b" [a b] w32(((1 << low(a, 5)) - 1) << low(b, 5));
        "s_bfe_u32 d, a, b" [a b] w32(field(u32_(a), low(b, 5), low(b >> 16, 7))).nonzero();
        "s_bfe_u64 dd, aa, b" [a b] w64(field(u64_(a), low(b, 6), low(b >> 16, 7))).nonzero();
        "s_pack_ll_b32_b16 d, a, b" [a b] w32(u16_(a) + (u16_(b) << 16));
        "s_pack_lh_b32_b16 d, a, b" [a b] w32(u16_(a) + (u16_(b >> 16) << 16));
        "s_pack_hh_b32_b16 d, a, b" [a b] w32(u16_(a >> 16) + (u16_(b >> 16) << 16));
        "s_mov_b32 d, a" [a] w32(u32_(a));
        "s_mov_b64 dd, aa" [a] w64(u64_(a));
        "s_not_b32 d, a" [a] w32(u32_(!a)).nonzero();
        "s_not_b64 dd, aa" [a] w64(u64_(!a)).nonzero();
        "s_brev_b32 d, a" [a] w32(mirrored(a, 32));
        "s_brev_b64 dd, aa" [a] w64(mirrored(a, 64));
        "s_bcnt1_i32_b32 d, a" [a] w32(ones(a, 32)).nonzero();
        "s_bcnt1_i32_b64 d, aa" [a] w32(ones(a, 64)).nonzero();
        "s_ff1_i32_b32 d, a" [a] w32(first(a, 32, |index| index));
        "s_ff1_i32_b64 d, aa" [a] w32(first(a, 64, |index| index));
        "s_flbit_i32_b32 d, a" [a] w32(first(a, 32, |index| 31 - index));
        "s_flbit_i32_b64 d, aa" [a] w32(first(a, 64, |index| 63 - index));
        "s_bitset0_b32 d, a" [a c] w32(u32_(c & !(1 << low(a, 5))));
        "s_bitset1_b32 d, a" [a c] w32(u32_(c | 1 << low(a, 5)));
        "s_bitcmp0_b32 a, b" [a b] only(a >> low(b, 5) & 1 == 0);
        "s_bitcmp1_b32 a, b" [a b] only(a >> low(b, 5) & 1 == 1);
        "s_bitcmp0_b64 aa, b" [a b] only(a >> low(b, 6) & 1 == 0);
        "s_bitcmp1_b64 aa, b" [a b] only(a >> low(b, 6) & 1 == 1);
        "s_cmp_eq_u64 aa, bb" [a b] only(u64_(a) - u64_(b) == 0);
        "s_cmp_lg_u64 aa, bb" [a b] only(u64_(a) - u64_(b) != 0);
    }
}

/// The old EXEC in the destination, and the new one.
fn leaves(old: u64, new: u64) -> Out {
    w64(u64_(old)).flag(new != 0).exec(new)
}

/// EXEC is `b` before.
#[rustfmt::skip]
fn masks() -> Vec<Case> {
    cases! {
        "s_mov_b64 exec, bb\ns_and_saveexec_b64 dd, aa" [a b] leaves(b, a & b);
        "s_mov_b64 exec, bb\ns_or_saveexec_b64 dd, aa" [a b] leaves(b, a | b);
        "s_mov_b64 exec, bb\ns_xor_saveexec_b64 dd, aa" [a b] leaves(b, a ^ b);
        "s_mov_b64 exec, bb\ns_andn2_saveexec_b64 dd, aa" [a b] leaves(b, a & !b);
        "s_mov_b64 exec, bb\ns_orn2_saveexec_b64 dd, aa" [a b] leaves(b, a | !b);
        "s_mov_b64 exec, bb\ns_nand_saveexec_b64 dd, aa" [a b] leaves(b, !(a & b));
        "s_mov_b64 exec, bb\ns_nor_saveexec_b64 dd, aa" [a b] leaves(b, !(a | b));
        "s_mov_b64 exec, bb\ns_xnor_saveexec_b64 dd, aa" [a b] leaves(b, !(a ^ b));
    }
}

fn either(taken: bool, a: u64, b: u64) -> Out {
    w32(u32_(if taken { a } else { b }))
}

/// A branch over one instruction, and jumps to addresses: the ones that write `b` to `d` are passed over.
#[rustfmt::skip]
fn jumps() -> Vec<Case> {
    cases! {
        "s_mov_b32 d, a\ns_branch 1\ns_mov_b32 d, b" [a] w32(u32_(a));
        "s_mov_b32 d, a\ns_cbranch_scc0 1\ns_mov_b32 d, b" [a b flag] either(!flag, a, b);
        "s_mov_b32 d, a\ns_cbranch_scc1 1\ns_mov_b32 d, b" [a b flag] either(flag, a, b);
        "s_mov_b64 vcc, cc\ns_mov_b32 d, a\ns_cbranch_vccz 1\ns_mov_b32 d, b" [a b c] either(c == 0, a, b);
        "s_mov_b64 vcc, cc\ns_mov_b32 d, a\ns_cbranch_vccnz 1\ns_mov_b32 d, b" [a b c] either(c != 0, a, b);
        "s_mov_b64 exec, cc\ns_mov_b32 d, a\ns_cbranch_execz 1\ns_mov_b32 d, b" [a b c] either(c == 0, a, b).exec(c);
        "s_mov_b64 exec, cc\ns_mov_b32 d, a\ns_cbranch_execnz 1\ns_mov_b32 d, b" [a b c] either(c != 0, a, b).exec(c);
        "s_mov_b32 d, a\ns_getpc_b64 s[20:21]\ns_add_u32 s20, s20, 16\ns_addc_u32 s21, s21, 0\n\
         s_setpc_b64 s[20:21]\ns_mov_b32 d, b" [a] w32(u32_(a)).flag(false);
        // Where it returns to is 4 bytes before where it goes.
        "s_getpc_b64 s[20:21]\ns_add_u32 s20, s20, 16\ns_addc_u32 s21, s21, 0\ns_swappc_b64 s[22:23], s[20:21]\n\
         s_mov_b32 s20, b\ns_sub_u32 d, s22, s20" [] w32(-4).flag(true);
    }
}

/// With operands, and with a constant of 16 bits.
fn constants() -> Vec<Case> {
    let mut all = Vec::new();
    let case = |text: String, model: super::Model| Case { text, model };
    for (kind, wide) in [("i32", i32_ as Number), ("u32", u32_)] {
        for (name, holds) in COMPARISONS {
            let text = format!("s_cmp_{name}_{kind} a, b");
            let model: super::Model =
                Box::new(move |wave, _| only(holds(wide(wave[0].a).cmp(&wide(wave[0].b)))));
            all.push(case(text, model));
        }
    }
    for k in [0_u64, 1, 2, 0x7fff, 0x8000, 0xffff] {
        for (kind, wide, small) in [("i32", i32_ as Number, i16_ as Number), ("u32", u32_, u16_)] {
            for (name, holds) in COMPARISONS {
                let text = format!("s_cmpk_{name}_{kind} a, {k:#x}");
                let model: super::Model =
                    Box::new(move |wave, _| only(holds(wide(wave[0].a).cmp(&small(k)))));
                all.push(case(text, model));
            }
        }
        all.push(case(format!("s_movk_i32 d, {k:#x}"), Box::new(move |_, _| w32(i16_(k)))));
        let model = move |wave: &[super::Row]| i32_(wave[0].c) + i16_(k);
        all.push(case(
            format!("s_addk_i32 d, {k:#x}"),
            Box::new(move |wave, _| overflow(model(wave))),
        ));
        let model = move |wave: &[super::Row]| i32_(wave[0].c) * i16_(k);
        all.push(case(format!("s_mulk_i32 d, {k:#x}"), Box::new(move |wave, _| w32(model(wave)))));
    }
    all
}

pub(super) fn cases() -> Vec<Case> {
    [arithmetic(), words(), masks(), jumps(), constants()].into_iter().flatten().collect()
}
