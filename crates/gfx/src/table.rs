//! The opcodes: number, name, operands, and what each does.
use crate::inst::{Encoding, Op};

mod memory;
mod row;
mod scalar;
mod vector;

pub(crate) use vector::CLAMPED;

/// The entry of an opcode.
pub(crate) fn find(encoding: Encoding, number: u32) -> Option<&'static Op> {
    let tables: &[&'static [Op]] = match encoding {
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vop3 | Encoding::Vop3p => {
            &[vector::OPS, vector::CROSS]
        }
        Encoding::Vopc => &[vector::COMPARES],
        Encoding::Smem | Encoding::Ds | Encoding::Flat | Encoding::Mubuf => &[memory::OPS],
        _ => &[scalar::OPS, scalar::CONTROL],
    };
    tables
        .iter()
        .flat_map(|table| table.iter())
        .find(|op| op.encoding == encoding && op.number == number)
}
