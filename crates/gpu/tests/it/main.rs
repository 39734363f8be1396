//! Tests of the crate as a whole.

mod arena;
mod blocks;
#[cfg(feature = "cuda")]
mod vendor;
mod withdraw;
