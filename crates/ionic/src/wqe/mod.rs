//! Send WQEs: bytes to values with [`parse`], values to bytes with [`build`].

mod build;
mod parse;
mod violation;

pub use build::{BuildError, build, build_datagram};
pub(crate) use build::{entries, put_entries, whole};
pub(crate) use parse::place;
pub use parse::{parse, parse_datagram};
pub use violation::WqeViolation;

use crate::body::Entry;

/// A send work request in the bytes of a WQE.
pub type Posted<'a> = warpverbs_rdma::Posted<'a, Entry>;
