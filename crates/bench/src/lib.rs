//! One rig, for the program `warpverbs` and for maintainers, that measures and tests NICs: `warpverbs
//! perf`, `warpverbs conform`, and the trials beside other RoCEv2 NICs. Each family of measurements brings its cases and the columns
//! of its rows; plans, meeting, timing, comparing, printing and plotting are [`rig`]'s.
#![forbid(unsafe_code)]

#[cfg(feature = "rig")]
pub mod conform;
#[cfg(feature = "rig")]
pub mod interop;
#[cfg(feature = "rig")]
pub mod perf;
pub mod rig;
pub mod ucx;
pub mod units;
