//! Parts of what the user asks to be measured, checked before anything is set up.

use crate::units::{self, parse_size};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpverbs::gpu::Place;
use warpverbs::transport::Mtu;

/// The poster of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Poster {
    /// A CPU thread.
    Host,
    /// A kernel.
    Kernel,
}

/// The operation that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND into a posted receive.
    Send,
    /// 64-bit fetch-and-add.
    Atomic,
}

/// A value as the user writes it.
pub(crate) fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Op {
    /// Whether latency between two processes is half of a message there and one back; otherwise it
    /// is one operation.
    pub(crate) fn is_ping_pong(self) -> bool {
        matches!(self, Self::Write | Self::Send)
    }
}

/// Where payloads lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mem {
    /// The device's own memory.
    Device,
    /// Host memory that the device maps.
    Pinned,
}

impl Mem {
    /// As GPUs call it.
    pub(crate) fn place(self) -> Place {
        match self {
            Self::Device => Place::Device,
            Self::Pinned => Place::Shared,
        }
    }
}

/// A request that cannot be measured.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum PlanError {
    /// A number is out of its range.
    #[error("{flag} is {value}, expected {expected}")]
    Range { flag: &'static str, value: u64, expected: String },
    #[error("{flag} has no meaning with {with}: {why}")]
    Conflict { flag: &'static str, with: &'static str, why: &'static str },
    /// The buffers would not fit.
    #[error(
        "{qps} queue pairs with messages of {} need {}, at most {} is allowed; lower -e or -q",
        units::bytes(*bytes), units::bytes(*need), units::bytes(*limit)
    )]
    Memory { qps: u64, bytes: u64, need: u64, limit: u64 },
}

/// Queue pairs at most in a row, whatever is measured.
pub(crate) const MAX_QPS: u32 = 4096;
pub(crate) const MAX_MESSAGE: u64 = 1 << 30;
/// Bytes of payload buffers at most.
pub(crate) const MAX_MEMORY: u64 = 8 << 30;
/// Operations per queue pair and row at most: each has a sample.
pub(crate) const MAX_ITERS: u32 = 10_000_000;

/// `value`, if it is one of `low..=high`.
pub(crate) fn within(
    flag: &'static str,
    value: u64,
    low: u64,
    high: u64,
) -> Result<u64, PlanError> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(PlanError::Range { flag, value, expected: format!("{low} to {high}") })
}

/// `-n`: measured operations.
pub(crate) fn check_iters(iters: u32) -> Result<u64, PlanError> {
    within("-n", iters.into(), 1, MAX_ITERS.into())
}

/// `-w`: operations before measuring; 0 leaves them out.
pub(crate) fn check_warmup(warmup: u32) -> Result<u64, PlanError> {
    within("-w", warmup.into(), 0, MAX_ITERS.into())
}

/// `-q`: queue pairs of each row, with source and destination of this many bytes.
pub(crate) fn check_qps(qps: &[u32], bytes: u64) -> Result<(), PlanError> {
    for &qps in qps {
        let qps = within("-q", qps.into(), 1, MAX_QPS.into())?;
        let need = 2 * qps * bytes;
        if need > MAX_MEMORY {
            return Err(PlanError::Memory { qps, bytes, need, limit: MAX_MEMORY });
        }
    }
    Ok(())
}

/// `-c` and `-t`: blocks of a posting kernel, and threads of each.
pub(crate) fn grid(blocks: Option<u32>, threads: Option<u32>) -> Result<(u32, u32), PlanError> {
    let blocks = within("-c", blocks.unwrap_or(1).into(), 1, 4096)?;
    let threads = within("-t", threads.unwrap_or(32).into(), 1, 1024)?;
    Ok((blocks as u32, threads as u32))
}

/// Sizes of messages and numbers of queue pairs: a row for each of both.
#[derive(Args, Clone, Debug)]
pub(crate) struct Span {
    /// Smallest message (K, M, G are powers of 1024)
    #[arg(short = 'b', long, value_parser = parse_size, default_value = "8")]
    min: u64,
    /// Largest message [default: 8 for atomics, else 1M]
    #[arg(short = 'e', long, value_parser = parse_size)]
    max: Option<u64>,
    /// Factor from one message size to the next
    #[arg(short = 'f', long, default_value_t = 8)]
    factor: u64,
    /// Queue pairs, one row each: 1,16,256
    #[arg(short = 'q', long, value_delimiter = ',', default_value = "1")]
    pub(crate) qps: Vec<u32>,
    /// Seconds after which a row is given up
    #[arg(long, default_value_t = 30)]
    pub(crate) row_limit: u64,
}

impl Span {
    /// The sizes; everything else is in range, too.
    pub(crate) fn sizes(&self, op: Op) -> Result<Vec<u64>, PlanError> {
        let sizes = sizes(op, self.min, self.max, self.factor)?;
        check_qps(&self.qps, sizes.last().copied().unwrap_or(1))?;
        check_row_limit(self.row_limit)?;
        Ok(sizes)
    }
}

/// `--row-limit`: seconds.
pub(crate) fn check_row_limit(seconds: u64) -> Result<u64, PlanError> {
    within("--row-limit", seconds, 1, 3600)
}

/// `-b`, `-e` and `-f`: `min`, `min × factor`, … up to `max`, which is always the last.
pub(crate) fn sizes(
    op: Op,
    min: u64,
    max: Option<u64>,
    factor: u64,
) -> Result<Vec<u64>, PlanError> {
    let max = max.unwrap_or(if op == Op::Atomic { 8 } else { min.max(1 << 20) });
    within("-b", min, 1, MAX_MESSAGE)?;
    within("-e", max, min, MAX_MESSAGE)?;
    within("-f", factor, 2, 1 << 20)?;
    if op == Op::Atomic && (min, max) != (8, 8) {
        let why = "an atomic is 8 bytes";
        return Err(PlanError::Conflict { flag: "-b or -e", with: "atomics", why });
    }
    let mut sizes: Vec<u64> = std::iter::successors(Some(min), |s| s.checked_mul(factor))
        .take_while(|&s| s < max)
        .collect();
    sizes.push(max);
    Ok(sizes)
}

/// The path MTU of this many bytes.
pub(crate) fn mtu(bytes: u32) -> anyhow::Result<Mtu> {
    let found = Mtu::from_bytes(bytes as usize);
    found.with_context(|| format!("--mtu is {bytes}, expected 256, 512, 1024, 2048 or 4096"))
}
