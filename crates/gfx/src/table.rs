//! The opcodes: number, name, operands, and what each does.
use crate::inst::{Encoding, Op};
use crate::target::Target;

mod memory;
mod row;
mod scalar;
mod vector;

pub(crate) use vector::CLAMPED;

/// The names of the scalar and vector opcodes that are emulated for `target`, and of scalar loads; those of FLAT, MUBUF
/// and DS are not among them.
pub fn opcodes(target: Target) -> impl Iterator<Item = &'static str> {
    let own = if target == Target::Gfx90a { vector::GFX90A } else { vector::GFX942 };
    let tables = [scalar::OPS, scalar::CONTROL, vector::OPS, vector::CROSS, vector::COMPARES, own];
    let scalar_memory = memory::OPS.iter().filter(|op| op.encoding == Encoding::Smem);
    tables.into_iter().flatten().chain(scalar_memory).map(|op| op.name)
}

/// The entry of an opcode.
pub(crate) fn find(target: Target, encoding: Encoding, number: u32) -> Option<&'static Op> {
    let tables: &[&'static [Op]] = match (encoding, target) {
        (Encoding::Vop1 | Encoding::Vop2 | Encoding::Vop3 | Encoding::Vop3p, target) => {
            let own = if target == Target::Gfx90a { vector::GFX90A } else { vector::GFX942 };
            &[vector::OPS, vector::CROSS, own]
        }
        (Encoding::Vopc, _) => &[vector::COMPARES],
        (Encoding::Mubuf, Target::Gfx90a) => &[memory::OPS, memory::GFX90A],
        (Encoding::Mubuf, Target::Gfx942) => &[memory::OPS, memory::GFX942],
        (Encoding::Smem | Encoding::Ds | Encoding::Flat, _) => {
            &[memory::OPS, memory::ATOMICS, memory::SIGNED]
        }
        _ => &[scalar::OPS, scalar::CONTROL],
    };
    let mut all = tables.iter().flat_map(|table| table.iter());
    all.find(|op| op.encoding == encoding && op.number == number)
}
