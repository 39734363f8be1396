//! SOP1, SOP2, SOPC, SOPK, SOPP. A flag is SCC.
use super::row::{borrow, carry, compute, first, special};
use crate::inst::{Encoding::*, Inst, Kind::*, Op, Run};
use crate::wave::Wave;

/// A result, and whether it is not zero.
fn nz<T: PartialEq + Default + Copy>(value: T) -> (T, bool) {
    (value, value != T::default())
}
/// Adds, and says whether the signed result does not fit.
fn add(a: u32, b: u32) -> (u32, bool) {
    (a.wrapping_add(b), (a as i32).overflowing_add(b as i32).1)
}
/// Offset and width from a word, as the bit-field instructions have them.
fn field(word: u32, value: u64, bits: u32) -> u64 {
    let (offset, width) = (word & (bits - 1), word >> 16 & 0x7f);
    let shifted = value >> offset;
    if width >= 64 { shifted } else { shifted & ((1 << width) - 1) }
}

pub(super) static OPS: &[Op] = compute! {
    Sop2 0x00 s_add_u32(a: u32, b: u32) -> (u32, bool) = carry(a, b, false);
    Sop2 0x01 s_sub_u32(a: u32, b: u32) -> (u32, bool) = borrow(a, b, false);
    Sop2 0x02 s_add_i32(a: u32, b: u32) -> (u32, bool) = add(a, b);
    Sop2 0x03 s_sub_i32(a: u32, b: u32) -> (u32, bool) = (a.wrapping_sub(b), (a as i32).overflowing_sub(b as i32).1);
    Sop2 0x04 s_addc_u32(a: u32, b: u32, c: bool) -> (u32, bool) = carry(a, b, c);
    Sop2 0x05 s_subb_u32(a: u32, b: u32, c: bool) -> (u32, bool) = borrow(a, b, c);
    Sop2 0x06 s_min_i32(a: i32, b: i32) -> (i32, bool) = (a.min(b), a < b);
    Sop2 0x07 s_min_u32(a: u32, b: u32) -> (u32, bool) = (a.min(b), a < b);
    Sop2 0x08 s_max_i32(a: i32, b: i32) -> (i32, bool) = (a.max(b), a >= b);
    Sop2 0x09 s_max_u32(a: u32, b: u32) -> (u32, bool) = (a.max(b), a >= b);
    Sop2 0x0a s_cselect_b32(a: u32, b: u32, c: bool) -> u32 = if c { a } else { b };
    Sop2 0x0b s_cselect_b64(a: u64, b: u64, c: bool) -> u64 = if c { a } else { b };
    Sop2 0x0c s_and_b32(a: u32, b: u32) -> (u32, bool) = nz(a & b);
    Sop2 0x0d s_and_b64(a: u64, b: u64) -> (u64, bool) = nz(a & b);
    Sop2 0x0e s_or_b32(a: u32, b: u32) -> (u32, bool) = nz(a | b);
    Sop2 0x0f s_or_b64(a: u64, b: u64) -> (u64, bool) = nz(a | b);
    Sop2 0x10 s_xor_b32(a: u32, b: u32) -> (u32, bool) = nz(a ^ b);
    Sop2 0x11 s_xor_b64(a: u64, b: u64) -> (u64, bool) = nz(a ^ b);
    Sop2 0x12 s_andn2_b32(a: u32, b: u32) -> (u32, bool) = nz(a & !b);
    Sop2 0x13 s_andn2_b64(a: u64, b: u64) -> (u64, bool) = nz(a & !b);
    Sop2 0x14 s_orn2_b32(a: u32, b: u32) -> (u32, bool) = nz(a | !b);
    Sop2 0x15 s_orn2_b64(a: u64, b: u64) -> (u64, bool) = nz(a | !b);
    Sop2 0x16 s_nand_b32(a: u32, b: u32) -> (u32, bool) = nz(!(a & b));
    Sop2 0x17 s_nand_b64(a: u64, b: u64) -> (u64, bool) = nz(!(a & b));
    Sop2 0x18 s_nor_b32(a: u32, b: u32) -> (u32, bool) = nz(!(a | b));
    Sop2 0x19 s_nor_b64(a: u64, b: u64) -> (u64, bool) = nz(!(a | b));
    Sop2 0x1a s_xnor_b32(a: u32, b: u32) -> (u32, bool) = nz(!(a ^ b));
    Sop2 0x1b s_xnor_b64(a: u64, b: u64) -> (u64, bool) = nz(!(a ^ b));
    Sop2 0x1c s_lshl_b32(a: u32, b: u32) -> (u32, bool) = nz(a << (b & 31));
    Sop2 0x1d s_lshl_b64(a: u64, b: u32) -> (u64, bool) = nz(a << (b & 63));
    Sop2 0x1e s_lshr_b32(a: u32, b: u32) -> (u32, bool) = nz(a >> (b & 31));
    Sop2 0x1f s_lshr_b64(a: u64, b: u32) -> (u64, bool) = nz(a >> (b & 63));
    Sop2 0x20 s_ashr_i32(a: i32, b: u32) -> (i32, bool) = nz(a >> (b & 31));
    Sop2 0x21 s_ashr_i64(a: i64, b: u32) -> (i64, bool) = nz(a >> (b & 63));
    Sop2 0x22 s_bfm_b32(a: u32, b: u32) -> u32 = ((1 << (a & 31)) - 1) << (b & 31);
    Sop2 0x24 s_mul_i32(a: u32, b: u32) -> u32 = a.wrapping_mul(b);
    Sop2 0x25 s_bfe_u32(a: u32, b: u32) -> (u32, bool) = nz(field(b, a.into(), 32) as u32);
    Sop2 0x27 s_bfe_u64(a: u64, b: u32) -> (u64, bool) = nz(field(b, a, 64));
    Sop2 0x2c s_mul_hi_u32(a: u32, b: u32) -> u32 = ((u64::from(a) * u64::from(b)) >> 32) as u32;
    Sop2 0x2d s_mul_hi_i32(a: i32, b: i32) -> i32 = ((i64::from(a) * i64::from(b)) >> 32) as i32;
    Sop2 0x2e s_lshl1_add_u32(a: u32, b: u32) -> (u32, bool) = shift_add(a, 1, b);
    Sop2 0x2f s_lshl2_add_u32(a: u32, b: u32) -> (u32, bool) = shift_add(a, 2, b);
    Sop2 0x30 s_lshl3_add_u32(a: u32, b: u32) -> (u32, bool) = shift_add(a, 3, b);
    Sop2 0x31 s_lshl4_add_u32(a: u32, b: u32) -> (u32, bool) = shift_add(a, 4, b);
    Sop2 0x32 s_pack_ll_b32_b16(a: u32, b: u32) -> u32 = a & 0xffff | b << 16;
    Sop2 0x33 s_pack_lh_b32_b16(a: u32, b: u32) -> u32 = a & 0xffff | b & 0xffff_0000;
    Sop2 0x34 s_pack_hh_b32_b16(a: u32, b: u32) -> u32 = a >> 16 | b & 0xffff_0000;
    Sop1 0x00 s_mov_b32(a: u32) -> u32 = a;
    Sop1 0x01 s_mov_b64(a: u64) -> u64 = a;
    Sop1 0x04 s_not_b32(a: u32) -> (u32, bool) = nz(!a);
    Sop1 0x05 s_not_b64(a: u64) -> (u64, bool) = nz(!a);
    Sop1 0x08 s_brev_b32(a: u32) -> u32 = a.reverse_bits();
    Sop1 0x09 s_brev_b64(a: u64) -> u64 = a.reverse_bits();
    Sop1 0x0c s_bcnt1_i32_b32(a: u32) -> (u32, bool) = nz(a.count_ones());
    Sop1 0x0d s_bcnt1_i32_b64(a: u64) -> (u32, bool) = nz(a.count_ones());
    Sop1 0x10 s_ff1_i32_b32(a: u32) -> u32 = first(a.trailing_zeros(), 32);
    Sop1 0x11 s_ff1_i32_b64(a: u64) -> u32 = first(a.trailing_zeros(), 64);
    Sop1 0x12 s_flbit_i32_b32(a: u32) -> u32 = first(a.leading_zeros(), 32);
    Sop1 0x13 s_flbit_i32_b64(a: u64) -> u32 = first(a.leading_zeros(), 64);
    Sop1 0x16 s_sext_i32_i8(a: u32) -> i32 = (a as i8).into();
    Sop1 0x17 s_sext_i32_i16(a: u32) -> i32 = (a as i16).into();
    Sop1 0x18 s_bitset0_b32(bit: u32, to: u32) -> u32 = to & !(1 << (bit & 31));
    Sop1 0x1a s_bitset1_b32(bit: u32, to: u32) -> u32 = to | 1 << (bit & 31);
    Sop1 0x30 s_abs_i32(a: i32) -> (u32, bool) = nz(a.unsigned_abs());
    Sopc 0x00 s_cmp_eq_i32(a: i32, b: i32) -> bool = a == b;
    Sopc 0x01 s_cmp_lg_i32(a: i32, b: i32) -> bool = a != b;
    Sopc 0x02 s_cmp_gt_i32(a: i32, b: i32) -> bool = a > b;
    Sopc 0x03 s_cmp_ge_i32(a: i32, b: i32) -> bool = a >= b;
    Sopc 0x04 s_cmp_lt_i32(a: i32, b: i32) -> bool = a < b;
    Sopc 0x05 s_cmp_le_i32(a: i32, b: i32) -> bool = a <= b;
    Sopc 0x06 s_cmp_eq_u32(a: u32, b: u32) -> bool = a == b;
    Sopc 0x07 s_cmp_lg_u32(a: u32, b: u32) -> bool = a != b;
    Sopc 0x08 s_cmp_gt_u32(a: u32, b: u32) -> bool = a > b;
    Sopc 0x09 s_cmp_ge_u32(a: u32, b: u32) -> bool = a >= b;
    Sopc 0x0a s_cmp_lt_u32(a: u32, b: u32) -> bool = a < b;
    Sopc 0x0b s_cmp_le_u32(a: u32, b: u32) -> bool = a <= b;
    Sopc 0x0c s_bitcmp0_b32(a: u32, b: u32) -> bool = a >> (b & 31) & 1 == 0;
    Sopc 0x0d s_bitcmp1_b32(a: u32, b: u32) -> bool = a >> (b & 31) & 1 != 0;
    Sopc 0x0e s_bitcmp0_b64(a: u64, b: u32) -> bool = a >> (b & 63) & 1 == 0;
    Sopc 0x0f s_bitcmp1_b64(a: u64, b: u32) -> bool = a >> (b & 63) & 1 != 0;
    Sopc 0x12 s_cmp_eq_u64(a: u64, b: u64) -> bool = a == b;
    Sopc 0x13 s_cmp_lg_u64(a: u64, b: u64) -> bool = a != b;
    Sopk 0x00 s_movk_i32(k: u32) -> u32 = k;
    Sopk 0x02 s_cmpk_eq_i32(a: i32, k: i32) -> bool = a == k;
    Sopk 0x03 s_cmpk_lg_i32(a: i32, k: i32) -> bool = a != k;
    Sopk 0x04 s_cmpk_gt_i32(a: i32, k: i32) -> bool = a > k;
    Sopk 0x05 s_cmpk_ge_i32(a: i32, k: i32) -> bool = a >= k;
    Sopk 0x06 s_cmpk_lt_i32(a: i32, k: i32) -> bool = a < k;
    Sopk 0x07 s_cmpk_le_i32(a: i32, k: i32) -> bool = a <= k;
    Sopk 0x08 s_cmpk_eq_u32(a: u32, k: u32) -> bool = a == k & 0xffff;
    Sopk 0x09 s_cmpk_lg_u32(a: u32, k: u32) -> bool = a != k & 0xffff;
    Sopk 0x0a s_cmpk_gt_u32(a: u32, k: u32) -> bool = a > k & 0xffff;
    Sopk 0x0b s_cmpk_ge_u32(a: u32, k: u32) -> bool = a >= k & 0xffff;
    Sopk 0x0c s_cmpk_lt_u32(a: u32, k: u32) -> bool = a < k & 0xffff;
    Sopk 0x0d s_cmpk_le_u32(a: u32, k: u32) -> bool = a <= k & 0xffff;
    Sopk 0x0e s_addk_i32(a: u32, k: u32) -> (u32, bool) = add(a, k);
    Sopk 0x0f s_mulk_i32(a: u32, k: u32) -> u32 = a.wrapping_mul(k);
};

fn shift_add(a: u32, shift: u32, b: u32) -> (u32, bool) {
    let sum = (u64::from(a) << shift) + u64::from(b);
    (sum as u32, sum >> 32 != 0)
}

/// With no operands but an immediate.
const fn program(number: u32, name: &'static str, run: Run) -> Op {
    special(Sopp, number, name, None, &[], run)
}
const fn branch(number: u32, name: &'static str, holds: fn(&Wave) -> bool) -> Op {
    program(number, name, Run::Branch(holds))
}
const fn save(number: u32, name: &'static str, exec: fn(u64, u64) -> u64) -> Op {
    special(Sop1, number, name, B64, &[B64], Run::SaveExec(exec))
}

fn get_pc(wave: &mut Wave, inst: &Inst) {
    wave.write64(inst.dst, wave.address(4));
}
fn set_pc(wave: &mut Wave, inst: &Inst) {
    wave.jump(wave.scalar64(inst.src[0]));
}
fn swap_pc(wave: &mut Wave, inst: &Inst) {
    let target = wave.scalar64(inst.src[0]);
    get_pc(wave, inst);
    wave.jump(target);
}

pub(super) static CONTROL: &[Op] = &[
    special(Sop1, 0x1c, "s_getpc_b64", B64, &[], Run::Wave(get_pc)),
    special(Sop1, 0x1d, "s_setpc_b64", None, &[B64], Run::Wave(set_pc)),
    special(Sop1, 0x1e, "s_swappc_b64", B64, &[B64], Run::Wave(swap_pc)),
    save(0x20, "s_and_saveexec_b64", |source, exec| source & exec),
    save(0x21, "s_or_saveexec_b64", |source, exec| source | exec),
    save(0x22, "s_xor_saveexec_b64", |source, exec| source ^ exec),
    save(0x23, "s_andn2_saveexec_b64", |source, exec| source & !exec),
    save(0x24, "s_orn2_saveexec_b64", |source, exec| source | !exec),
    save(0x25, "s_nand_saveexec_b64", |source, exec| !(source & exec)),
    save(0x26, "s_nor_saveexec_b64", |source, exec| !(source | exec)),
    save(0x27, "s_xnor_saveexec_b64", |source, exec| !(source ^ exec)),
    program(0x00, "s_nop", Run::Nothing),
    program(0x01, "s_endpgm", Run::End),
    branch(0x02, "s_branch", |_| true),
    branch(0x04, "s_cbranch_scc0", |wave| !wave.scc),
    branch(0x05, "s_cbranch_scc1", |wave| wave.scc),
    branch(0x06, "s_cbranch_vccz", |wave| wave.vcc() == 0),
    branch(0x07, "s_cbranch_vccnz", |wave| wave.vcc() != 0),
    branch(0x08, "s_cbranch_execz", |wave| wave.exec() == 0),
    branch(0x09, "s_cbranch_execnz", |wave| wave.exec() != 0),
    program(0x0a, "s_barrier", Run::Barrier),
    program(0x0c, "s_waitcnt", Run::Wait),
    program(0x0d, "s_sethalt", Run::Trap),
    program(0x0e, "s_sleep", Run::Sleep),
    program(0x0f, "s_setprio", Run::Nothing),
    program(0x12, "s_trap", Run::Trap),
    program(0x13, "s_icache_inv", Run::Nothing),
];
