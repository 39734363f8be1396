//! Tests of the crate as a whole.

mod pair;
mod ranges;
