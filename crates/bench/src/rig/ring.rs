//! A look at what a kernel left in a send queue: every slot parsed and compared with what was to
//! be posted.

use super::kernel;
use super::machine::Pair;
use anyhow::{Context as _, Result};
use std::ops::AddAssign;
use std::time::Duration;
use thiserror::Error;
use warpverbs::gpu::{Dim, Gpu, KernelPtr, Place};
use warpverbs::raw::mlx5::num::{Lkey, Qpn, Rkey, WqeIndex};
use warpverbs::raw::mlx5::wqe::{Op, Payload, Position, Remote, Sge, WqeViolation, parse};
use warpverbs_test_kernels::perf;

/// A slot that does not hold the WQE that was posted.
#[derive(Debug, Error)]
pub(crate) enum BadSlot {
    #[error("send queue {qpn:#x}, index {index}: {violation}")]
    Malformed { qpn: u32, index: u64, violation: WqeViolation },
    #[error("send queue {qpn:#x}, index {index}: a WQE that nobody posted: {found}")]
    Foreign { qpn: u32, index: u64, found: String },
    /// More was rung for than posted.
    #[error(
        "send queue {qpn:#x}: {published} WQEBBs rung for, {posted} WRITEs posted, {nops} NOPs found"
    )]
    Count { qpn: u32, published: u64, posted: u64, nops: u64 },
}

/// WQEs found in a send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) wqes: u64,
    /// NOPs, which a wait adds behind unsignalled work.
    nops: u64,
}

impl AddAssign for Left {
    fn add_assign(&mut self, other: Self) {
        self.wqes += other.wqes;
        self.nops += other.nops;
    }
}

const LIMIT: Duration = Duration::from_secs(10);

/// Reads the ring back. `posted` 8-byte WRITEs of all of the pair's buffer went through it, and
/// nothing else but NOPs.
pub(crate) fn check(gpu: &dyn Gpu, pair: &Pair, depth: u32, posted: u64) -> Result<Left> {
    let endpoint = &pair.link.near;
    let bytes = copy(gpu, pair, depth)?;
    let published = endpoint.health()?.send.published;
    let qpn = Qpn::new(endpoint.qpn()).context("a QP number of 24 bits")?;
    let mut left = Left::default();
    for index in published.saturating_sub(depth.into())..published {
        let slot = index as usize % depth as usize * 64;
        left += slot_at(&bytes[slot..slot + 64], qpn, index, pair)?;
    }
    // NOPs that were overwritten are not counted, so the count is then a lower bound.
    let whole = published <= depth.into();
    let exact = published == posted + left.nops;
    let bounded = published >= posted && published <= posted + published / 2 + 1;
    if if whole { exact } else { bounded } {
        return Ok(left);
    }
    Err(BadSlot::Count { qpn: qpn.get(), published, posted, nops: left.nops }.into())
}

fn copy(gpu: &dyn Gpu, pair: &Pair, depth: u32) -> Result<Vec<u8>> {
    let len = depth as usize * 64;
    let out = gpu.alloc(len, Place::Device)?;
    let qp = pair.link.near.device_qp();
    let kernel = perf::CopyRing { qp, out: KernelPtr::new(&out), segments: 4 * depth };
    kernel::run(gpu, &kernel, Dim::new(4, 128), LIMIT)?;
    let mut bytes = vec![0; len];
    gpu.read(&out, 0, &mut bytes)?;
    Ok(bytes)
}

fn slot_at(bytes: &[u8], qpn: Qpn, index: u64, pair: &Pair) -> Result<Left, BadSlot> {
    let at = Position { qpn, index: WqeIndex(index as u16) };
    let number = qpn.get();
    let wqe = parse(bytes, at).map_err(|violation| BadSlot::Malformed {
        qpn: number,
        index,
        violation,
    })?;
    let (local, remote) = (pair.local.local(), pair.remote.remote());
    let source = Sge { addr: local.addr(), len: local.len() as u32, lkey: Lkey(local.lkey()) };
    let target = Remote { addr: remote.addr(), rkey: Rkey(remote.rkey()) };
    match wqe.op {
        Op::Nop => Ok(Left { wqes: 0, nops: 1 }),
        Op::Write { remote, payload: Payload::Sges(sges), imm: None }
            if remote == target && sges.single() == Some(source) =>
        {
            Ok(Left { wqes: 1, nops: 0 })
        }
        other => Err(BadSlot::Foreign { qpn: number, index, found: format!("{other:?}") }),
    }
}
