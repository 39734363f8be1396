//! The most that two ranks of a machine can do, for other families of rows to stand beside.

use super::cases::{Case, Group, Message, Plan};
use super::rank::Rank;
use crate::rig::machine::on_host;
use anyhow::Result;
use std::sync::Arc;
use warpverbs::gpu::Gpu;
use warpverbs::rendezvous::World;
use warpverbs::transport::Device;

/// Measured from rank 0 to rank 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::perf) struct Yardsticks {
    /// Puts of large parts by all blocks.
    pub(in crate::perf) copy_bytes_per_s: f64,
    /// A signal there and back by one thread of each.
    pub(in crate::perf) flag_ns: f64,
}

/// Measures them in a world of two ranks or more, which comes back; rank 0 gets them.
pub(in crate::perf) fn measure(
    world: World,
    gpu: &Arc<dyn Gpu>,
    nic: &Device,
) -> Result<(World, Option<Yardsticks>)> {
    let on_host = on_host(gpu.info());
    let (iters, bytes) = if on_host { (20, 1 << 16) } else { (1000, 1 << 26) };
    let mut rank = Rank::within(world, gpu.clone(), nic, bytes, iters)?;
    let direct = rank.is_direct();
    let plan =
        Plan { iters, warmup: iters / 10, transfers: 20, bytes, direct, bulk: false, on_host };
    let (blocks, threads) = if on_host { (2, 64) } else { (gpu.info().sm_count, 512) };
    let (group, flag_threads) = if direct { (Group::Thread, 1) } else { (Group::Block, 128) };
    let flag = Case::Exchange { message: Message::Signal, group, threads: flag_threads, bytes: 0 };
    let flag = rank.measure(&plan, &flag)?;
    let copy = rank.measure(&plan, &Case::Stream { gets: false, blocks, threads })?;
    let found = flag.zip(copy).and_then(|(flag, copy)| {
        Some(Yardsticks { copy_bytes_per_s: copy.gb_per_s? * 1e9, flag_ns: flag.us? * 1e3 })
    });
    Ok((rank.into_world(), found))
}
