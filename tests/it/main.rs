//! Tests of the examples.

mod agents;
mod common;
mod dependencies;
mod dist;
mod examples;
mod face;
mod on_a_gpu;
// By their paths: as a package, every example would compile them and the packages below.
#[allow(unreachable_pub, reason = "of another package")]
#[path = "../../crates/dev/src/gpu.rs"]
mod gpu;
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it, from another package")]
#[path = "../../crates/dev/src/seeds.rs"]
mod seeds;
