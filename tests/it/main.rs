//! Tests of the examples.

mod agents;
mod common;
mod dependencies;
mod dist;
mod examples;
mod face;
// By its path: as a package, every example would compile it and the packages below it.
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it, from another package")]
#[path = "../../crates/dev/src/seeds.rs"]
mod seeds;
