//! A model checker, for those who change the device library or the host's posting protocol, with one
//! weak memory model: every interleaving, and for every load every store that the model lets it read.
//!
//! `cargo test -p warpverbs-modelcheck` is what CI runs. With `WARPVERBS_MODELCHECK_EFFORT=100` in
//! the environment (a campaign of hours) it explores 100 times the states and random runs.
//! `docs/model-checking.md` says what is modelled and how to read a failure.
#![deny(unsafe_code)]

mod explore;
#[allow(unsafe_code)]
mod fiber;
mod finish;
pub mod host;
mod machine;
mod memory;
mod nic;
mod op;
mod post;
mod poster;
mod race;
mod receiver;
mod report;
mod scenario;
pub mod threads;
pub mod world;

pub use explore::{Settings, explore, replay};
pub use fiber::{Body, Kernel, Lane, kernels};
pub use memory::{Initial, Place, THREADS};
pub use op::{Access, Order, Scope, Site};
pub use poster::Poster;
pub use report::{Failure, Report};
pub use scenario::{Change, End, Finish, Mutant, NOTES, Rule, Scenario, SiteUse, ThreadSpec, Time};
