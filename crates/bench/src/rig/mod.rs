//! The rig of all families: plans, the machine that is measured, meeting, timing, comparing and plotting.

pub(crate) mod cases;
pub(crate) mod common;
pub(crate) mod ends;
pub(crate) mod host;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod pattern;
pub(crate) mod plan;
pub(crate) mod plot;
pub(crate) mod receive;
pub(crate) mod ring;
pub(crate) mod roundtrip;
pub(crate) mod talk;

pub(crate) use common::{Common, NicOnly};
