//! The exported QP: what the host hands to a kernel so that it can post by itself.
//!
//! One plain struct, [`Qp`], says where everything lies; the only mutable bookkeeping is behind
//! [`Qp::state`], a [`PostState`] followed by nothing else. `warpverbs-layout` declares both, for Rust and
//! for `kernels/include/warpverbs/qp.h`.
//!
//! Addresses are the ones the *poster* uses (a device pointer for a GPU). Integers here are in
//! native (little-endian) byte order, unlike everything the NIC reads.

pub use warpverbs_layout::{
    Cause, Cq, CqMode, ErrorWord, Fault, PollWord, PostState, Qp, QueueState,
};

/// Scratch slots per QP for results of atomics that name no buffer of their own.
pub const SCRATCH_SLOTS: usize = 64;
