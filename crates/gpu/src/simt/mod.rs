//! The host SIMT device: kernels compiled by the host's compiler, one coroutine per lane, any
//! number of warps on one thread per launch. `docs/simt.md` describes how it works and what it shows.

mod abi;
mod arena;
mod block;
mod config;
mod device;
mod executor;
mod fault;
mod graph;
mod hooks;
mod lane;
mod lockstep;
mod policy;
mod queue;
mod report;
mod run;
mod runner;
mod stack;
#[cfg(test)]
mod tests;
mod warp;

pub use abi::Site;
pub use config::{Clock, LOCKSTEP_VARIABLE, Mode, SEED_VARIABLE, SimtConfig, Stepper};
pub use device::SimtDevice;
pub use executor::Counts;
pub use fault::{Collective, LaneName, SimtFault};
pub use run::Finished;
