//! Structures that host and kernels exchange as plain memory, declared once for the crates that do so.
//!
//! [`layout!`] makes of one table the Rust type and its [`Item`]; a [`Header`] is a list of items, and
//! prints as a C++ header with the same fields, sizes and offsets, and an assertion of each. The headers
//! are checked in, `kernels/include/warpverbs/layout`, so that programs use them as plain files:
//! `WARPVERBS_WRITE_HEADERS=1 cargo test -p warpverbs-layout -p warpverbs-mlx5 header` writes them, and
//! without the variable the tests fail if one is out of date.
//!
//! Integers here are in native (little-endian) byte order. Those that a NIC reads are big-endian;
//! `warpverbs-mlx5` declares them by the same macro. Addresses are those of the kernels that read them.
#![no_std]
#![forbid(unsafe_code)]

mod blocks;
mod header;
mod heap;
mod qp;
mod stop;
mod table;
mod views;

pub use blocks::BlockPiece;
pub use header::Header;
pub use heap::{Heap, HeapFault, HeapState, NicAddress, Peer, Reach, Signal, Window, WindowPeer};
pub use qp::{Cause, Cq, CqMode, ErrorWord, Fault, PollWord, PostState, Qp, QueueState};
pub use stop::StopRecord;
pub use table::{Enumeration, Field, Item, Part, Structure, Value, Word};
pub use views::{LocalEntry, LocalHead, RemoteEntry, RemoteHead};

/// Every generated header.
pub const HEADERS: [&Header; 5] =
    [&blocks::HEADER, &heap::HEADER, &qp::HEADER, &stop::HEADER, &views::HEADER];
