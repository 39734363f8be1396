//! Kernels that measure and check: one module per file of `kernels`, one launcher per kernel. The
//! program `warpverbs` and the tests of this workspace run them; the kernels of examples are in
//! `warpverbs::kernels`.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

pub use generated::*;
