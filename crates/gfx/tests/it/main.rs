//! The emulator against LLVM's disassembler, against the host's arithmetic and the description of each opcode, and against broken input.
mod clang;
mod decode;
mod exercise;
mod gpu;
mod hostile;
mod isa;
mod mutants;
mod orders;
mod posts;
mod selftest;
mod stalls;
mod vectors;
mod waits;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// A random generator whose seed is printed.
fn random() -> StdRng {
    let seed = rand::random();
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}
