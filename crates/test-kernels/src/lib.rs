//! Kernels that measure and check, for the program `warpverbs` and the tests of this workspace: one
//! module per file of `kernels`, one launcher per kernel. The kernels of examples are in
//! `warpverbs::kernels`.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

pub use generated::*;
