//! What every NIC behind `warpverbs-transport` must do, as named cases that run on any of them: the
//! software NIC in loopback or over the network, and RDMA devices.
//!
//! ```
//! use warpverbs::raw::nic::Config;
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
//! The side that posts is in this process, its [`Peer`] here as well or in another: then it does what
//! it is asked over a [`Link`], by the same code ([`Actor`]).
//!
//! A case knows only the public interface. It makes its own endpoints, and says in words what it
//! found instead of what it expected. What a NIC is known to do otherwise is in [`DIFFERENCES`], with
//! the reason, and is shown with every run.
#![forbid(unsafe_code)]

mod cases;
mod difference;
mod outcome;
mod peer;
mod rig;
mod setup;

pub use cases::{CASES, Case, Poster};
pub use difference::{DIFFERENCES, Difference};
pub use outcome::{Outcome, Verdict};
pub use peer::{
    About, Actor, Arrival, Failure, LONGEST_REGION, LONGEST_REPLY, Link, Peer, Piece, Reply,
    Request, Shape, Take, Taken, Trouble, VERSION,
};
pub use setup::{Kind, Setup, Side, Which};
