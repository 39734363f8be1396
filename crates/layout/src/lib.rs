//! Structures and numbers that host and kernels exchange, declared once for the crates that do so.
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
mod ep;
mod header;
mod headers;
mod heap;
mod qp;
mod status;
mod stop;
mod table;
mod team;
mod views;

pub use blocks::{BlockPiece, PIECE_ADDRESS_BITS};
pub use ep::{
    EP_LANES, EP_RANKS, EP_REFUSED, EP_SCALED, EP_TOP_K, Ep, EpCombine, EpLayout, EpPayload,
    EpScale, EpState, EpWord,
};
pub use header::Header;
pub use headers::HEADERS;
pub use heap::{
    ALARM_OF_HEAP, Heap, HeapFault, HeapState, NO_RANK, NicAddress, Peer, Reach, Signal, Window,
    WindowPeer,
};
pub use qp::{
    Cq, CqMode, ErrorWord, FAULT_COMPLETE, FENCED_RECORD, Fault, MOST_PASSES, NicFormat, PollWord,
    PostState, Qp, QueueState, SCRATCH_SLOTS, TOKEN_OFFERED,
};
pub use status::{Outcome, Status, WaitFor};
pub use stop::StopRecord;
pub use table::{Constant, Enumeration, Field, Item, Part, Structure, Value, Word};
pub use team::{
    LINE_PAYLOAD, MOST_LOG_SLOTS, MailBlock, NARROW_MOST, TeamBlock, WIDE_PAIRS, WIDE_WORDS,
};
pub use views::{LocalEntry, LocalHead, RemoteEntry, RemoteHead};
