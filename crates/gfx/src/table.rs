//! The opcodes: number, name, operands, and what each does.
use crate::inst::{Encoding, Op};
use crate::target::Target;

mod memory;
mod row;
mod scalar;
mod vector;

pub(crate) use vector::CLAMPED;

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
        (Encoding::Smem | Encoding::Ds | Encoding::Flat, _) => &[memory::OPS],
        _ => &[scalar::OPS, scalar::CONTROL],
    };
    let mut all = tables.iter().flat_map(|table| table.iter());
    all.find(|op| op.encoding == encoding && op.number == number)
}
