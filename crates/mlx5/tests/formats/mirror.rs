//! The Rust side's numbers, for the C++ side to compile, and its layouts as a header.

use crate::golden::repository;
use warpverbs_kernel_build::{Mirror, generated};
use warpverbs_mlx5::export::{Cause, ErrorWord, SCRATCH_SLOTS};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::segment::HEADER;
use warpverbs_mlx5::syndrome::Syndrome;

#[test]
fn the_header_is_that_of_the_tables() {
    let file = repository().join("kernels/include/warpverbs").join(HEADER.path);
    generated(&file, &HEADER.to_string()).unwrap();
}

/// Every mirrored number.
pub(crate) fn all() -> Mirror {
    let mut mirror = Mirror::new(
        "#include \"warpverbs/mlx5/layout.h\"
#include \"warpverbs/mlx5/opcode.h\"
\
         #include \"warpverbs/qp.h\"
using namespace wv;
using namespace wv::mlx5;",
    );
    values(&mut mirror);
    mirror
}

/// Opcodes and syndromes by their C++ names, values taken from the Rust side.
fn values(mirror: &mut Mirror) {
    for opcode in SendOpcode::ALL {
        let name = opcode.name().to_lowercase().replace("atomic_masked", "masked");
        mirror.equal(&format!("static_cast<u8>(opcode::{name})"), opcode.value());
    }
    for syndrome in Syndrome::ALL {
        // LocalQpOp → local_qp_op
        let mut name = String::new();
        for c in format!("{syndrome:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(c.to_lowercase());
        }
        mirror.equal(&format!("static_cast<u8>(syndrome::{name})"), syndrome.value());
    }
    let word = ErrorWord::failed(Cause::Requester, 0x13, 0x88, 8, 0x1f3a).0;
    mirror.equal("ErrorWord::of(0x08881304, 0x1f3a).raw", format!("{word}ull"));
    mirror.equal("scratch_slots", SCRATCH_SLOTS);
}
