//! FLAT (names without the segment that they are prefixed with), MUBUF, SMEM, DS.
use super::row::special;
use crate::flat::permute;
use crate::inst::{Action, Coherence, Encoding::*, Inst, Kind::*, Memory, Op, Run};
use crate::wave::{Wave, ticks};

fn exchange(_: u64, new: u64) -> u64 {
    new
}

type Size = (u64, u16);

const fn flat(number: u32, name: &'static str, action: Action, (bytes, words): Size) -> Op {
    special(Flat, number, name, None, &[], Run::Memory(Memory { action, bytes, words }))
}
const fn load(number: u32, name: &'static str, size: Size) -> Op {
    flat(number, name, Action::Load, size)
}
const fn store(number: u32, name: &'static str, size: Size) -> Op {
    flat(number, name, Action::Store, size)
}

const fn ds(
    number: u32,
    name: &'static str,
    action: Action,
    (bytes, words): Size,
    stride: u32,
) -> Op {
    special(Ds, number, name, None, &[], Run::Ds(Memory { action, bytes, words }, stride))
}
const fn write(number: u32, name: &'static str, size: Size, stride: u32) -> Op {
    ds(number, name, Action::Store, size, stride)
}
const fn read(number: u32, name: &'static str, size: Size, stride: u32) -> Op {
    ds(number, name, Action::Load, size, stride)
}

/// On gfx90a alone, whose scratch memory is a buffer too: its loads and stores are numbered as those of FLAT.
pub(super) static GFX90A: &[Op] = &[
    special(Mubuf, 0x29, "buffer_invl2", None, &[], Run::Nothing),
    special(Mubuf, 0x3f, "buffer_wbinvl1_vol", None, &[], Run::Caches(Coherence::InvalidateVector)),
];

pub(super) static GFX942: &[Op] =
    &[special(Mubuf, 0x29, "buffer_inv", None, &[], Run::Caches(Coherence::Invalidate))];

/// Lines with the name and number of FLAT, the name, type and number of DS, and what becomes of the old value and the
/// operand; where a sign matters, for 32 and for 64 bits. In both encodings that of 64 bits and that of DS which returns
/// the old value have their numbers at fixed distances.
macro_rules! atomics {
    ($($flat:literal $number:literal, $ds:literal $kind:literal $ds_number:literal, $f:expr, $wide:expr;)*) => {
        &[$(
            flat($number, concat!("atomic_", $flat), Action::Atomic($f), (4, 1)),
            flat($number + 0x20, concat!("atomic_", $flat, "_x2"), Action::Atomic($wide), (4, 2)),
            ds($ds_number, concat!("ds_", $ds, "_", $kind, "32"), Action::Atomic($f), (4, 1), 0),
            ds($ds_number + 0x20, concat!("ds_", $ds, "_rtn_", $kind, "32"), Action::Atomic($f), (4, 1), 0),
            ds($ds_number + 0x40, concat!("ds_", $ds, "_", $kind, "64"), Action::Atomic($wide), (4, 2), 0),
            ds($ds_number + 0x60, concat!("ds_", $ds, "_rtn_", $kind, "64"), Action::Atomic($wide), (4, 2), 0),
        )*]
    };
    ($($flat:literal $number:literal, $ds:literal $kind:literal $ds_number:literal, $f:expr;)*) => {
        atomics! { $($flat $number, $ds $kind $ds_number, $f, $f;)* }
    };
}

pub(super) static ATOMICS: &[Op] = atomics! {
    "add" 0x42, "add" "u" 0x0, |old, new| old.wrapping_add(new);
    "sub" 0x43, "sub" "u" 0x1, |old, new| old.wrapping_sub(new);
    "umin" 0x45, "min" "u" 0x7, |old, new| old.min(new);
    "umax" 0x47, "max" "u" 0x8, |old, new| old.max(new);
    "and" 0x48, "and" "b" 0x9, |old, new| old & new;
    "or" 0x49, "or" "b" 0xa, |old, new| old | new;
    "xor" 0x4a, "xor" "b" 0xb, |old, new| old ^ new;
};
pub(super) static SIGNED: &[Op] = atomics! {
    "smin" 0x44, "min" "i" 0x5, |old, new| (old as i32).min(new as i32) as u64,
        |old, new| (old as i64).min(new as i64) as u64;
    "smax" 0x46, "max" "i" 0x6, |old, new| (old as i32).max(new as i32) as u64,
        |old, new| (old as i64).max(new as i64) as u64;
};

fn give(wave: &mut Wave, inst: &Inst) {
    permute(wave, inst, false);
}
fn take(wave: &mut Wave, inst: &Inst) {
    permute(wave, inst, true);
}
fn time(wave: &mut Wave, inst: &Inst) {
    wave.write64(inst.dst, ticks());
}

pub(super) static OPS: &[Op] = &[
    load(0x10, "load_ubyte", (1, 1)),
    flat(0x11, "load_sbyte", Action::LoadSigned, (1, 1)),
    load(0x12, "load_ushort", (2, 1)),
    flat(0x13, "load_sshort", Action::LoadSigned, (2, 1)),
    load(0x14, "load_dword", (4, 1)),
    load(0x15, "load_dwordx2", (4, 2)),
    load(0x16, "load_dwordx3", (4, 3)),
    load(0x17, "load_dwordx4", (4, 4)),
    store(0x18, "store_byte", (1, 1)),
    store(0x1a, "store_short", (2, 1)),
    store(0x1c, "store_dword", (4, 1)),
    store(0x1d, "store_dwordx2", (4, 2)),
    store(0x1e, "store_dwordx3", (4, 3)),
    store(0x1f, "store_dwordx4", (4, 4)),
    flat(0x40, "atomic_swap", Action::Atomic(exchange), (4, 1)),
    flat(0x60, "atomic_swap_x2", Action::Atomic(exchange), (4, 2)),
    flat(0x41, "atomic_cmpswap", Action::Swap, (4, 1)),
    flat(0x61, "atomic_cmpswap_x2", Action::Swap, (4, 2)),
    special(Mubuf, 0x28, "buffer_wbl2", None, &[], Run::Caches(Coherence::WriteBack)),
    special(Smem, 0x0, "s_load_dword", None, &[], Run::ScalarLoad(1)),
    special(Smem, 0x1, "s_load_dwordx2", None, &[], Run::ScalarLoad(2)),
    special(Smem, 0x2, "s_load_dwordx4", None, &[], Run::ScalarLoad(4)),
    special(Smem, 0x3, "s_load_dwordx8", None, &[], Run::ScalarLoad(8)),
    special(Smem, 0x4, "s_load_dwordx16", None, &[], Run::ScalarLoad(16)),
    special(Smem, 0x20, "s_dcache_inv", None, &[], Run::Caches(Coherence::InvalidateScalar)),
    special(Smem, 0x21, "s_dcache_wb", None, &[], Run::Nothing),
    special(Smem, 0x24, "s_memtime", B64, &[], Run::Wave(time)),
    special(Smem, 0x25, "s_memrealtime", B64, &[], Run::Wave(time)),
    ds(0x2d, "ds_wrxchg_rtn_b32", Action::Atomic(exchange), (4, 1), 0),
    ds(0x30, "ds_cmpst_rtn_b32", Action::Swap, (4, 1), 0),
    write(0xd, "ds_write_b32", (4, 1), 0),
    write(0xe, "ds_write2_b32", (4, 1), 4),
    write(0xf, "ds_write2st64_b32", (4, 1), 256),
    read(0x36, "ds_read_b32", (4, 1), 0),
    read(0x37, "ds_read2_b32", (4, 1), 4),
    read(0x38, "ds_read2st64_b32", (4, 1), 256),
    ds(0x6d, "ds_wrxchg_rtn_b64", Action::Atomic(exchange), (4, 2), 0),
    ds(0x70, "ds_cmpst_rtn_b64", Action::Swap, (4, 2), 0),
    write(0x4d, "ds_write_b64", (4, 2), 0),
    write(0x4e, "ds_write2_b64", (4, 2), 8),
    write(0x4f, "ds_write2st64_b64", (4, 2), 512),
    read(0x76, "ds_read_b64", (4, 2), 0),
    read(0x77, "ds_read2_b64", (4, 2), 8),
    read(0x78, "ds_read2st64_b64", (4, 2), 512),
    write(0x1e, "ds_write_b8", (1, 1), 0),
    write(0x1f, "ds_write_b16", (2, 1), 0),
    ds(0x39, "ds_read_i8", Action::LoadSigned, (1, 1), 0),
    read(0x3a, "ds_read_u8", (1, 1), 0),
    ds(0x3b, "ds_read_i16", Action::LoadSigned, (2, 1), 0),
    read(0x3c, "ds_read_u16", (2, 1), 0),
    write(0xde, "ds_write_b96", (4, 3), 0),
    write(0xdf, "ds_write_b128", (4, 4), 0),
    read(0xfe, "ds_read_b96", (4, 3), 0),
    read(0xff, "ds_read_b128", (4, 4), 0),
    special(Ds, 0x3e, "ds_permute_b32", B32, &[B32, B32], Run::Wave(give)),
    special(Ds, 0x3f, "ds_bpermute_b32", B32, &[B32, B32], Run::Wave(take)),
];
