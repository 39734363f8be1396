//! Tests of the package as a whole, and of the examples.

mod agents;
mod common;
mod device;
mod dist;
mod examples;
mod nvrtc;
mod selftest;
mod simt;
mod views;
