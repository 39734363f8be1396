//! A look at what a kernel left in a send queue: every slot parsed and compared with what was to
//! be posted.

use super::kernel;
use super::machine::Pair;
use anyhow::{Context as _, Result};
use std::error::Error as StdError;
use std::ops::AddAssign;
use std::time::Duration;
use thiserror::Error;
use warpverbs::gpu::{Dim, Gpu, KernelPtr, Place};
use warpverbs::raw::mlx5::num::{Qpn, WQEBB, WqeIndex};
use warpverbs::raw::mlx5::wqe::{self as mlx5, Payload};
use warpverbs::transport::NicFormat;
use warpverbs_bnxt::slot::{HEADERS, SLOT};
use warpverbs_bnxt::{ring::Library, wqe as bnxt};
use warpverbs_ionic::{opcode::Protocol, ring::Position, wqe as ionic};
use warpverbs_rdma::{Op, Posted, Remote, Sge};
use warpverbs_test_kernels::perf;

/// A slot that does not hold the WQE that was posted.
#[derive(Debug, Error)]
pub(crate) enum BadSlot {
    #[error("send queue {qpn:#x}, index {index}: {violation}")]
    Malformed { qpn: u32, index: u64, violation: Violation },
    #[error("send queue {qpn:#x}, index {index}: a WQE that nobody posted: {found}")]
    Foreign { qpn: u32, index: u64, found: String },
    /// More was rung for than posted.
    #[error(
        "send queue {qpn:#x}: {published} WQEBBs rung for, {posted} WRITEs posted, {nops} NOPs found"
    )]
    Count { qpn: u32, published: u64, posted: u64, nops: u64 },
}

/// The rule of its format that a WQE breaks.
type Violation = Box<dyn StdError + Send + Sync>;

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

/// Bytes of a WQE of one unit, as kernels post them.
fn unit(format: NicFormat) -> usize {
    match format {
        NicFormat::Mlx5 | NicFormat::Ionic => WQEBB,
        NicFormat::Bnxt => usize::from(HEADERS + 1) * SLOT,
    }
}

/// Reads the ring back, of so many units of a format. `posted` 8-byte WRITEs of all of the pair's buffer went
/// through it, and nothing else but NOPs.
pub(crate) fn check(
    gpu: &dyn Gpu,
    pair: &Pair,
    (format, depth): (NicFormat, u32),
    posted: u64,
) -> Result<Left> {
    let (endpoint, unit) = (&pair.link.near, unit(format));
    let bytes = copy(gpu, pair, depth as usize * unit)?;
    let published = endpoint.health()?.send.published;
    let qpn = Qpn::new(endpoint.qpn()).context("a QP number of 24 bits")?;
    let mut left = Left::default();
    for index in published.saturating_sub(depth.into())..published {
        let slot = index as usize % depth as usize * unit;
        let found = match format {
            NicFormat::Mlx5 => of_mlx5(&bytes[slot..slot + unit], qpn, index),
            NicFormat::Bnxt => of_bnxt(&bytes[slot..slot + unit]),
            NicFormat::Ionic => of_ionic(&bytes[slot..slot + unit], index, depth),
        };
        let qpn = qpn.get();
        let found = found.map_err(|violation| BadSlot::Malformed { qpn, index, violation })?;
        left += found.left(pair).map_err(|found| BadSlot::Foreign { qpn, index, found })?;
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

fn copy(gpu: &dyn Gpu, pair: &Pair, len: usize) -> Result<Vec<u8>> {
    let out = gpu.alloc(len, Place::Device)?;
    let qp = pair.link.near.device_qp();
    let kernel = perf::CopyRing { qp, out: KernelPtr::new(&out), segments: len as u32 / 16 };
    kernel::run(gpu, &kernel, Dim::new(4, 128), LIMIT)?;
    let mut bytes = vec![0; len];
    gpu.read(&out, 0, &mut bytes)?;
    Ok(bytes)
}

/// Contents of a slot, as far as they matter here.
enum Found {
    Nop,
    Write { from: Option<Sge>, to: Remote },
    Other(String),
}

fn of_mlx5(bytes: &[u8], qpn: Qpn, index: u64) -> Result<Found, Violation> {
    let at = mlx5::Position { qpn, index: WqeIndex(index as u16) };
    Ok(match mlx5::parse(bytes, at)?.op {
        mlx5::Op::Nop => Found::Nop,
        mlx5::Op::Write { remote: to, payload: Payload::Sges(sges), imm: None } => {
            Found::Write { from: sges.single(), to }
        }
        other => Found::Other(format!("{other:?}")),
    })
}

fn of_bnxt(bytes: &[u8]) -> Result<Found, Violation> {
    Ok(Found::of(&bnxt::parse(bytes, Library::Current)?))
}

fn of_ionic(bytes: &[u8], counter: u64, depth: u32) -> Result<Found, Violation> {
    let at = Position { counter, log_depth: depth.ilog2() as u8 };
    Ok(Found::of(&ionic::parse(bytes, at, Protocol::V2)?))
}

impl Found {
    /// Of a format whose NOPs are WRITEs of nothing.
    fn of<E>(posted: &Posted<'_, E>) -> Self
    where
        for<'e> Sge: From<&'e E>,
    {
        match posted.op {
            Op::Write(_) if posted.byte_len() == 0 => Self::Nop,
            Op::Write(to) if posted.inline.is_empty() => {
                Self::Write { from: posted.local.single(), to }
            }
            other => Self::Other(format!("{other:?}")),
        }
    }

    fn left(self, pair: &Pair) -> Result<Left, String> {
        let (local, remote) = (pair.local.local(), pair.remote.remote());
        let source = Sge::new(local.addr(), local.len() as u32, local.lkey());
        let target = Remote::new(remote.addr(), remote.rkey());
        match self {
            Self::Nop => Ok(Left { wqes: 0, nops: 1 }),
            Self::Write { from, to } if (from, to) == (Some(source), target) => {
                Ok(Left { wqes: 1, nops: 0 })
            }
            Self::Write { from, to } => Err(format!("WRITE of {from:?} to {to:?}")),
            Self::Other(found) => Err(found),
        }
    }
}
