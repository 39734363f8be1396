//! Tests of the crate as a whole.

mod arena;
mod blocks;
#[cfg(feature = "cuda")]
mod cuda;
mod withdraw;
