//! Tests of connections, as one program: one build and one link.

#[path = "../common/mod.rs"]
mod common;

mod extended;
mod goodput;
mod hostile;
mod limits;
mod protocol;
mod scripts;
mod silence;
mod simulation;
