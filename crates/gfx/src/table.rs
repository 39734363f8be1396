//! The opcodes: number, name, operands, and what each does.
use crate::inst::{Encoding, Op};
use crate::target::Target;
use std::collections::HashMap;
use std::sync::OnceLock;

mod memory;
mod row;
mod scalar;
mod vector;

pub(crate) use vector::CLAMPED;

fn all(target: Target) -> impl Iterator<Item = &'static Op> {
    let own = match target {
        Target::Gfx90a => [vector::GFX90A, memory::GFX90A],
        Target::Gfx942 => [vector::GFX942, memory::GFX942],
    };
    let tables: [&[Op]; 9] = [
        scalar::OPS,
        scalar::CONTROL,
        vector::OPS,
        vector::INTEGERS,
        vector::COMPARES,
        vector::CROSS,
        memory::OPS,
        memory::ATOMICS,
        memory::SIGNED,
    ];
    tables.into_iter().chain(own).flatten()
}

/// The names of the scalar and vector opcodes that are emulated for `target`, and of scalar loads; those of FLAT, MUBUF
/// and DS are not among them.
pub fn opcodes(target: Target) -> impl Iterator<Item = &'static str> {
    let accesses = [Encoding::Flat, Encoding::Mubuf, Encoding::Ds];
    all(target).filter(move |op| !accesses.contains(&op.encoding)).map(|op| op.name)
}

/// The entry of an opcode.
pub(crate) fn find(target: Target, encoding: Encoding, number: u32) -> Option<&'static Op> {
    type Index = HashMap<(Encoding, u32), &'static Op>;
    static OF_TARGETS: [OnceLock<Index>; 2] = [const { OnceLock::new() }; 2];
    let index = OF_TARGETS[target as usize]
        .get_or_init(|| all(target).map(|op| ((op.encoding, op.number), op)).collect());
    index.get(&(encoding, number)).copied()
}
