//! One rig, for the program `warpverbs` and for maintainers, that measures and tests NICs: `warpverbs
//! perf`, `warpverbs conform`, and the trials beside other RoCEv2 NICs. Each family of measurements brings its cases and the columns
//! of its rows; plans, meeting, timing, comparing and plotting are the rig's.
#![forbid(unsafe_code)]

pub mod busy;
pub mod child;
#[cfg(feature = "rig")]
pub mod conform;
pub mod folder;
#[cfg(feature = "rig")]
pub mod interop;
pub mod output;
#[cfg(feature = "rig")]
pub mod perf;
pub mod print;
#[cfg(feature = "rig")]
mod rig;
pub mod stats;
pub mod ucx;
pub mod units;
