//! Tests of the examples.

mod agents;
mod common;
mod dependencies;
mod dist;
mod examples;
mod face;
