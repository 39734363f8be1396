//! What every NIC behind `warpverbs-transport` must do, as named cases that run on any of them: the
//! software NIC in loopback or over the network, and RDMA devices.
//!
//! ```
//! use warpverbs::nic::Config;
//! use warpverbs_conformance::{CASES, Setup};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let setup = Setup::loopback(Config::default())?;
//! let case = CASES.iter().find(|case| case.name == "write_sizes").ok_or("no such case")?;
//! let outcome = setup.run(case);
//! assert!(outcome.is_right(), "{outcome}");
//! # Ok(())
//! # }
//! ```
//!
//! A case knows only the public interface. It makes its own endpoints, and says in words what it
//! found instead of what it expected. What a NIC is known to do otherwise is in [`DIFFERENCES`], with
//! the reason, and is shown with every run.
#![forbid(unsafe_code)]

mod cases;
mod difference;
mod outcome;
mod rig;
mod setup;

pub use cases::{CASES, Case, Poster};
pub use difference::{DIFFERENCES, Difference};
pub use outcome::{Outcome, Verdict};
pub use setup::{Kind, Setup, Side};
