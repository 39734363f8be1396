//! The rig: plans, the machine that is measured, meeting, timing, comparing, printing and plotting.

pub(crate) mod busy;
pub(crate) mod cases;
pub(crate) mod common;
pub(crate) mod ends;
pub(crate) mod host;
pub(crate) mod kernel;
pub(crate) mod local;
pub(crate) mod machine;
pub(crate) mod output;
pub(crate) mod pattern;
pub(crate) mod plan;
pub(crate) mod plot;
pub mod print;
pub(crate) mod receive;
pub(crate) mod ring;
pub(crate) mod roundtrip;
pub(crate) mod stats;
pub(crate) mod talk;

pub use common::Common;
pub(crate) use common::NicOnly;
