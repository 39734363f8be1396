//! The exported QP: what the host hands to a kernel so that it can post by itself.
//!
//! One plain struct, [`Qp`], says where everything lies; the only mutable bookkeeping is behind
//! [`Qp::state`], a [`PostState`] followed by nothing else. `warpverbs-layout` declares both, for Rust and
//! for `kernels/include/warpverbs/qp.h`.
//!
//! Addresses are the ones the *poster* uses (a device pointer for a GPU). Integers here are in
//! native (little-endian) byte order, unlike everything the NIC reads.

pub use warpverbs_layout::{
    Cq, CqMode, ErrorWord, FAULT_COMPLETE, FENCED_RECORD, Fault, MOST_PASSES, NicFormat, Outcome,
    PollWord, PostState, Qp, QueueState, SCRATCH_SLOTS, Status, TOKEN_OFFERED, WaitFor,
};
