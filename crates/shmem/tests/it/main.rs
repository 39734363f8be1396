//! Tests of the crate as a whole.

mod device;
mod heap;
mod layout;
mod numbers;
