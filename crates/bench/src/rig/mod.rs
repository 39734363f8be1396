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
pub(crate) mod ranks;
pub(crate) mod receive;
pub(crate) mod ring;
pub(crate) mod roundtrip;
pub(crate) mod talk;
pub(crate) mod threads;

use crate::stats::Summary;
use anyhow::{Context as _, Result};
pub(crate) use common::{Common, NicOnly};
use machine::Pair;
use plan::{Op, Poster};
use std::time::Duration;
use warpverbs::gpu::Gpu;

/// One operation at a time by either poster, each from post to polled completion.
pub(crate) fn latency(
    gpu: &dyn Gpu,
    (poster, pair): (Poster, &Pair),
    op: Op,
    (warmup, iters): (u32, u32),
    limit: Duration,
) -> Result<Summary> {
    let samples = match poster {
        Poster::Host => host::latency(pair, op, warmup, iters, limit),
        Poster::Kernel => kernel::latency(gpu, pair.into(), op, warmup, iters, limit),
    };
    Summary::of(samples?).context("no samples")
}
