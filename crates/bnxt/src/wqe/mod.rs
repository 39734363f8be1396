//! Send WQEs: bytes to values with [`parse`], values to bytes with [`build`].

mod build;
mod parse;
mod violation;

pub(crate) use build::slots;
pub use build::{BuildError, build, build_datagram};
pub(crate) use parse::truncated;
pub use parse::{parse, parse_datagram, peek};
pub use violation::WqeViolation;

use crate::slot::SgeSlot;

/// A send work request in the slots of a WQE.
pub type Posted<'a> = warpverbs_rdma::Posted<'a, SgeSlot>;
