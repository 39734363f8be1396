//! Named cases of what each NIC of `warpverbs-transport` must do: they run on
//! the software NIC in loopback or over the network, and on RDMA devices.
//!
//! ```
//! use warpverbs::raw::nic::Config;
//! use warpverbs::transport::NicChoice;
//! use warpverbs_conformance::{CASES, Setup};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let setup = Setup::loopback(Config::default(), [NicChoice::Soft, NicChoice::Soft])?;
//! let case = CASES.iter().find(|case| case.name == "write_sizes").ok_or("no such case")?;
//! let outcome = setup.run(case);
//! assert!(outcome.is_right(), "{outcome}");
//! # Ok(())
//! # }
//! ```
//!
//! The side that posts is in this process. Its [`Peer`] is in this process or in another one, where
//! an [`Actor`] executes requests that arrive over a [`Link`]; the code is the same.
//!
//! A case uses only the public interface. It creates its own endpoints, and reports what it expected
//! and what it found. [`DIFFERENCES`] lists known deviations of NICs with the reason; every run
//! prints those that apply.
#![forbid(unsafe_code)]

mod case;
mod cases;
mod difference;
mod outcome;
mod peer;
mod rig;
mod setup;

pub use case::{Case, Poster};
pub use cases::CASES;
pub use difference::{DIFFERENCES, Difference};
pub use outcome::{Outcome, Verdict};
pub use peer::{
    About, Actor, Arrival, Failure, LONGEST_REGION, LONGEST_REPLY, Link, Peer, Piece, Reply,
    Request, Shape, Take, Taken, Trouble, VERSION,
};
pub use setup::{Kind, Setup, Side, Which};
