//! Tests of the examples.

mod agents;
mod common;
mod dist;
mod examples;
mod face;
