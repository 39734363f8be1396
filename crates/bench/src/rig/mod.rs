//! The rig: plans, the machine that is measured, meeting, timing, comparing, printing and plotting.
//! Rows, figures and their printing open no device, and need no feature.

pub mod busy;
pub mod child;
pub mod output;
pub mod print;
pub mod stats;

#[cfg(feature = "rig")]
pub(crate) mod cases;
#[cfg(feature = "rig")]
pub(crate) mod common;
#[cfg(feature = "rig")]
pub(crate) mod ends;
#[cfg(feature = "rig")]
pub(crate) mod host;
#[cfg(feature = "rig")]
pub(crate) mod kernel;
#[cfg(feature = "rig")]
pub(crate) mod local;
#[cfg(feature = "rig")]
pub(crate) mod machine;
#[cfg(feature = "rig")]
pub(crate) mod pattern;
#[cfg(feature = "rig")]
pub(crate) mod plan;
#[cfg(feature = "rig")]
pub(crate) mod plot;
#[cfg(feature = "rig")]
pub(crate) mod receive;
#[cfg(feature = "rig")]
pub(crate) mod ring;
#[cfg(feature = "rig")]
pub(crate) mod roundtrip;
#[cfg(feature = "rig")]
pub(crate) mod talk;

#[cfg(feature = "rig")]
pub use common::Common;
#[cfg(feature = "rig")]
pub(crate) use common::NicOnly;
