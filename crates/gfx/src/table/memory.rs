//! FLAT (names without the segment that they are prefixed with), MUBUF, SMEM, DS.
use super::row::special;
use crate::inst::{Caches, Ds, Encoding::*, Kind::*, Memory, Op, Run};
use crate::memory::Update;

fn exchange(_: u64, new: u64) -> u64 {
    new
}
fn add(old: u64, new: u64) -> u64 {
    old.wrapping_add(new)
}
fn sub(old: u64, new: u64) -> u64 {
    old.wrapping_sub(new)
}
fn min(old: u64, new: u64) -> u64 {
    old.min(new)
}
fn max(old: u64, new: u64) -> u64 {
    old.max(new)
}
fn min_i32(old: u64, new: u64) -> u64 {
    (old as i32).min(new as i32) as u64
}
fn max_i32(old: u64, new: u64) -> u64 {
    (old as i32).max(new as i32) as u64
}
fn min_i64(old: u64, new: u64) -> u64 {
    (old as i64).min(new as i64) as u64
}
fn max_i64(old: u64, new: u64) -> u64 {
    (old as i64).max(new as i64) as u64
}
fn and(old: u64, new: u64) -> u64 {
    old & new
}
fn or(old: u64, new: u64) -> u64 {
    old | new
}
fn xor(old: u64, new: u64) -> u64 {
    old ^ new
}

const fn flat(number: u32, name: &'static str, memory: Memory) -> Op {
    special(Flat, number, name, None, &[], Run::Memory(memory))
}
const fn load(number: u32, name: &'static str, bytes: u64, words: u16, signed: bool) -> Op {
    flat(number, name, Memory::Load { bytes, words, signed })
}
const fn store(number: u32, name: &'static str, bytes: u64, words: u16) -> Op {
    flat(number, name, Memory::Store { bytes, words })
}
const fn atomic(number: u32, name: &'static str, words: u16, f: Update) -> Op {
    flat(number, name, Memory::Atomic { words, f })
}

const fn ds(number: u32, name: &'static str, ds: Ds) -> Op {
    special(Ds, number, name, None, &[], Run::Ds(ds))
}
const fn ds_atomic(number: u32, name: &'static str, words: u16, returns: bool, f: Update) -> Op {
    ds(number, name, Ds::Atomic { words, returns, f })
}
/// Of bytes and words each of `count` times, `stride` bytes from one to the next.
const fn ds_write(
    number: u32,
    name: &'static str,
    (bytes, words): (u64, u16),
    count: u16,
    stride: u32,
) -> Op {
    ds(number, name, Ds::Write { bytes, words, count, stride })
}
/// As [`ds_write`], and whether a part of a word is extended by its sign.
const fn ds_read(
    number: u32,
    name: &'static str,
    (bytes, words, signed): (u64, u16, bool),
    count: u16,
    stride: u32,
) -> Op {
    ds(number, name, Ds::Read { bytes, words, signed, count, stride })
}

/// On gfx90a alone, whose scratch memory is a buffer too: its loads and stores are numbered as those of FLAT.
pub(super) static GFX90A: &[Op] = &[
    special(Mubuf, 0x29, "buffer_invl2", None, &[], Run::Caches(Caches::Nothing)),
    special(Mubuf, 0x3f, "buffer_wbinvl1_vol", None, &[], Run::Caches(Caches::InvalidateVector)),
];

pub(super) static GFX942: &[Op] =
    &[special(Mubuf, 0x29, "buffer_inv", None, &[], Run::Caches(Caches::Invalidate))];

pub(super) static OPS: &[Op] = &[
    load(0x10, "load_ubyte", 1, 1, false),
    load(0x11, "load_sbyte", 1, 1, true),
    load(0x12, "load_ushort", 2, 1, false),
    load(0x13, "load_sshort", 2, 1, true),
    load(0x14, "load_dword", 4, 1, false),
    load(0x15, "load_dwordx2", 4, 2, false),
    load(0x16, "load_dwordx3", 4, 3, false),
    load(0x17, "load_dwordx4", 4, 4, false),
    store(0x18, "store_byte", 1, 1),
    store(0x1a, "store_short", 2, 1),
    store(0x1c, "store_dword", 4, 1),
    store(0x1d, "store_dwordx2", 4, 2),
    store(0x1e, "store_dwordx3", 4, 3),
    store(0x1f, "store_dwordx4", 4, 4),
    atomic(0x40, "atomic_swap", 1, exchange),
    atomic(0x60, "atomic_swap_x2", 2, exchange),
    atomic(0x42, "atomic_add", 1, add),
    atomic(0x62, "atomic_add_x2", 2, add),
    atomic(0x43, "atomic_sub", 1, sub),
    atomic(0x63, "atomic_sub_x2", 2, sub),
    atomic(0x44, "atomic_smin", 1, min_i32),
    atomic(0x64, "atomic_smin_x2", 2, min_i64),
    atomic(0x45, "atomic_umin", 1, min),
    atomic(0x65, "atomic_umin_x2", 2, min),
    atomic(0x46, "atomic_smax", 1, max_i32),
    atomic(0x66, "atomic_smax_x2", 2, max_i64),
    atomic(0x47, "atomic_umax", 1, max),
    atomic(0x67, "atomic_umax_x2", 2, max),
    atomic(0x48, "atomic_and", 1, and),
    atomic(0x68, "atomic_and_x2", 2, and),
    atomic(0x49, "atomic_or", 1, or),
    atomic(0x69, "atomic_or_x2", 2, or),
    atomic(0x4a, "atomic_xor", 1, xor),
    atomic(0x6a, "atomic_xor_x2", 2, xor),
    flat(0x41, "atomic_cmpswap", Memory::Swap { words: 1 }),
    flat(0x61, "atomic_cmpswap_x2", Memory::Swap { words: 2 }),
    special(Mubuf, 0x28, "buffer_wbl2", None, &[], Run::Caches(Caches::WriteBack)),
    special(Smem, 0x0, "s_load_dword", None, &[], Run::ScalarLoad(1)),
    special(Smem, 0x1, "s_load_dwordx2", None, &[], Run::ScalarLoad(2)),
    special(Smem, 0x2, "s_load_dwordx4", None, &[], Run::ScalarLoad(4)),
    special(Smem, 0x3, "s_load_dwordx8", None, &[], Run::ScalarLoad(8)),
    special(Smem, 0x4, "s_load_dwordx16", None, &[], Run::ScalarLoad(16)),
    special(Smem, 0x20, "s_dcache_inv", None, &[], Run::Caches(Caches::InvalidateScalar)),
    special(Smem, 0x21, "s_dcache_wb", None, &[], Run::Caches(Caches::Nothing)),
    special(
        Smem,
        0x24,
        "s_memtime",
        B64,
        &[],
        Run::Wave(|wave, inst| wave.write64(inst.dst, crate::wave::ticks())),
    ),
    special(
        Smem,
        0x25,
        "s_memrealtime",
        B64,
        &[],
        Run::Wave(|wave, inst| wave.write64(inst.dst, crate::wave::ticks())),
    ),
    ds_atomic(0x0, "ds_add_u32", 1, false, add),
    ds_atomic(0x20, "ds_add_rtn_u32", 1, true, add),
    ds_atomic(0x40, "ds_add_u64", 2, false, add),
    ds_atomic(0x60, "ds_add_rtn_u64", 2, true, add),
    ds_atomic(0x1, "ds_sub_u32", 1, false, sub),
    ds_atomic(0x21, "ds_sub_rtn_u32", 1, true, sub),
    ds_atomic(0x41, "ds_sub_u64", 2, false, sub),
    ds_atomic(0x61, "ds_sub_rtn_u64", 2, true, sub),
    ds_atomic(0x5, "ds_min_i32", 1, false, min_i32),
    ds_atomic(0x25, "ds_min_rtn_i32", 1, true, min_i32),
    ds_atomic(0x45, "ds_min_i64", 2, false, min_i64),
    ds_atomic(0x65, "ds_min_rtn_i64", 2, true, min_i64),
    ds_atomic(0x7, "ds_min_u32", 1, false, min),
    ds_atomic(0x27, "ds_min_rtn_u32", 1, true, min),
    ds_atomic(0x47, "ds_min_u64", 2, false, min),
    ds_atomic(0x67, "ds_min_rtn_u64", 2, true, min),
    ds_atomic(0x6, "ds_max_i32", 1, false, max_i32),
    ds_atomic(0x26, "ds_max_rtn_i32", 1, true, max_i32),
    ds_atomic(0x46, "ds_max_i64", 2, false, max_i64),
    ds_atomic(0x66, "ds_max_rtn_i64", 2, true, max_i64),
    ds_atomic(0x8, "ds_max_u32", 1, false, max),
    ds_atomic(0x28, "ds_max_rtn_u32", 1, true, max),
    ds_atomic(0x48, "ds_max_u64", 2, false, max),
    ds_atomic(0x68, "ds_max_rtn_u64", 2, true, max),
    ds_atomic(0x9, "ds_and_b32", 1, false, and),
    ds_atomic(0x29, "ds_and_rtn_b32", 1, true, and),
    ds_atomic(0x49, "ds_and_b64", 2, false, and),
    ds_atomic(0x69, "ds_and_rtn_b64", 2, true, and),
    ds_atomic(0xa, "ds_or_b32", 1, false, or),
    ds_atomic(0x2a, "ds_or_rtn_b32", 1, true, or),
    ds_atomic(0x4a, "ds_or_b64", 2, false, or),
    ds_atomic(0x6a, "ds_or_rtn_b64", 2, true, or),
    ds_atomic(0xb, "ds_xor_b32", 1, false, xor),
    ds_atomic(0x2b, "ds_xor_rtn_b32", 1, true, xor),
    ds_atomic(0x4b, "ds_xor_b64", 2, false, xor),
    ds_atomic(0x6b, "ds_xor_rtn_b64", 2, true, xor),
    ds_atomic(0x2d, "ds_wrxchg_rtn_b32", 1, true, exchange),
    ds(0x30, "ds_cmpst_rtn_b32", Ds::Swap { words: 1 }),
    ds_write(0xd, "ds_write_b32", (4, 1), 1, 0),
    ds_write(0xe, "ds_write2_b32", (4, 1), 2, 4),
    ds_write(0xf, "ds_write2st64_b32", (4, 1), 2, 256),
    ds_read(0x36, "ds_read_b32", (4, 1, false), 1, 0),
    ds_read(0x37, "ds_read2_b32", (4, 1, false), 2, 4),
    ds_read(0x38, "ds_read2st64_b32", (4, 1, false), 2, 256),
    ds_atomic(0x6d, "ds_wrxchg_rtn_b64", 2, true, exchange),
    ds(0x70, "ds_cmpst_rtn_b64", Ds::Swap { words: 2 }),
    ds_write(0x4d, "ds_write_b64", (4, 2), 1, 0),
    ds_write(0x4e, "ds_write2_b64", (4, 2), 2, 8),
    ds_write(0x4f, "ds_write2st64_b64", (4, 2), 2, 512),
    ds_read(0x76, "ds_read_b64", (4, 2, false), 1, 0),
    ds_read(0x77, "ds_read2_b64", (4, 2, false), 2, 8),
    ds_read(0x78, "ds_read2st64_b64", (4, 2, false), 2, 512),
    ds_write(0x1e, "ds_write_b8", (1, 1), 1, 0),
    ds_write(0x1f, "ds_write_b16", (2, 1), 1, 0),
    ds_read(0x39, "ds_read_i8", (1, 1, true), 1, 0),
    ds_read(0x3a, "ds_read_u8", (1, 1, false), 1, 0),
    ds_read(0x3b, "ds_read_i16", (2, 1, true), 1, 0),
    ds_read(0x3c, "ds_read_u16", (2, 1, false), 1, 0),
    ds_write(0xde, "ds_write_b96", (4, 3), 1, 0),
    ds_write(0xdf, "ds_write_b128", (4, 4), 1, 0),
    ds_read(0xfe, "ds_read_b96", (4, 3, false), 1, 0),
    ds_read(0xff, "ds_read_b128", (4, 4, false), 1, 0),
    ds(0x3e, "ds_permute_b32", Ds::Permute { backward: false }),
    ds(0x3f, "ds_bpermute_b32", Ds::Permute { backward: true }),
];
