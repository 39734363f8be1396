//! Measuring with a kernel as the poster.

use super::machine::Pair;
use super::plan::Op;
use anyhow::{Context as _, Result, bail};
use std::time::Duration;
use thiserror::Error;
use warpverbs::gpu::{Buffer, Dim, Gpu, KernelPtr, Place, SafeKernel};
use warpverbs::transport::{Endpoint, LocalRegion, RemoteRegion};
use warpverbs_test_kernels::perf;

/// A kernel that ended before its work was done.
#[derive(Debug, Error)]
#[error("the kernel gave up with status {status:#x}: {health}")]
pub(crate) struct KernelFailure {
    /// `wv::Status`, as in `kernels/include/warpverbs/status.h`.
    status: u64,
    /// The health of the first endpoint that is not well.
    health: String,
}

/// An endpoint that a kernel posts to, and its memory.
pub(crate) struct Posting<'l> {
    pub(crate) endpoint: &'l Endpoint,
    pub(crate) local: LocalRegion,
    pub(crate) remote: RemoteRegion,
}

impl<'l> From<&'l Pair> for Posting<'l> {
    fn from(pair: &'l Pair) -> Self {
        let (local, remote) = pair.memory();
        Self { endpoint: &pair.link.near, local, remote }
    }
}

/// The pairs a kernel posts to, in its memory.
pub(crate) struct Targets {
    pointer: KernelPtr<perf::Target>,
    count: u32,
}

impl Targets {
    pub(crate) fn new(gpu: &dyn Gpu, postings: &[Posting<'_>]) -> Result<Self> {
        let target = |Posting { endpoint, local, remote }: &Posting<'_>| perf::Target {
            qp: endpoint.device_qp(),
            local: (*local).into(),
            remote: (*remote).into(),
        };
        let targets: Vec<_> = postings.iter().map(target).collect();
        let pointer = KernelPtr::upload(gpu, &targets)?;
        Ok(Self { pointer, count: postings.len() as u32 })
    }

    pub(crate) fn pointer(&self) -> KernelPtr<perf::Target> {
        self.pointer.clone()
    }
}

/// Where a kernel leaves its status (word 0) and its times (words 1 and 2).
pub(crate) struct Report(Buffer);

impl Report {
    pub(crate) fn new(gpu: &dyn Gpu) -> Result<Self> {
        Ok(Self(gpu.alloc(24, Place::Device)?))
    }

    pub(crate) fn pointer(&self) -> KernelPtr<u64> {
        KernelPtr::new(&self.0)
    }

    /// The two times, if the kernel says that all went well.
    pub(crate) fn times(&self, gpu: &dyn Gpu, postings: &[Posting<'_>]) -> Result<[u64; 2]> {
        let words = read_words(gpu, &self.0, 3)?;
        if words[0] == 0 {
            return Ok([words[1], words[2]]);
        }
        let health = unwell(postings.iter().map(|posting| posting.endpoint));
        let health = health.unwrap_or_else(|| "no endpoint knows why".to_owned());
        Err(KernelFailure { status: words[0], health }.into())
    }
}

/// The state of the first endpoint that is not well, in one line.
pub(crate) fn unwell<'e>(endpoints: impl IntoIterator<Item = &'e Endpoint>) -> Option<String> {
    let mut all = endpoints.into_iter().filter_map(|endpoint| endpoint.health().ok());
    all.find(|health| !health.is_ok()).map(one_line)
}

pub(crate) fn one_line(text: impl ToString) -> String {
    text.to_string().lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

pub(crate) fn read_words(gpu: &dyn Gpu, buffer: &Buffer, count: usize) -> Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    gpu.read(buffer, 0, &mut bytes)?;
    Ok(bytes
        .chunks_exact(8)
        .map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()))
        .collect())
}

pub(crate) fn op_code(op: Op) -> u32 {
    match op {
        Op::Write => 0,
        Op::Read => 1,
        Op::Atomic => 2,
        Op::Send => 3,
    }
}

/// One operation at a time, each from post to polled completion: nanoseconds of each.
pub(crate) fn latency(
    gpu: &dyn Gpu,
    posting: Posting<'_>,
    op: Op,
    warmup: u32,
    iters: u32,
    limit: Duration,
) -> Result<Vec<u64>> {
    let postings = [posting];
    let (targets, report) = (Targets::new(gpu, &postings)?, Report::new(gpu)?);
    let samples = gpu.alloc(iters as usize * 8, Place::Device)?;
    let kernel = perf::Latency {
        target: targets.pointer(),
        op: op_code(op),
        bytes: postings[0].local.len() as u32,
        warmup,
        iters,
        samples: KernelPtr::new(&samples),
        report: report.pointer(),
    };
    run(gpu, &kernel, Dim::new(1, 1), limit)?;
    nanos(gpu, &samples, iters, report.times(gpu, &postings)?)
}

/// From samples in ticks of the device's finest clock, and how long all of them took in nanoseconds
/// and in ticks.
pub(crate) fn nanos(
    gpu: &dyn Gpu,
    samples: &Buffer,
    iters: u32,
    times: [u64; 2],
) -> Result<Vec<u64>> {
    let [ns, ticks] = times;
    if ticks == 0 {
        bail!("the device's clock stood still");
    }
    let scale = ns as f64 / ticks as f64;
    let ticks = read_words(gpu, samples, iters as usize)?;
    Ok(ticks.into_iter().map(|t| (t as f64 * scale).round() as u64).collect())
}

/// `iters` operations on every pair by a whole grid. The time from its first lane's start to its
/// last lane's end, on the device's clock.
pub(crate) fn stream(
    gpu: &dyn Gpu,
    postings: &[Posting<'_>],
    op: Op,
    iters: u32,
    dim: Dim,
    limit: Duration,
) -> Result<Duration> {
    let (targets, report) = (Targets::new(gpu, postings)?, Report::new(gpu)?);
    let (count, op) = (targets.count, op_code(op));
    let bytes = postings.first().map_or(0, |posting| posting.local.len() as u32);
    let (targets, report_at) = (targets.pointer(), report.pointer());
    // A grid of one warp at most has the kernel that is made for it, as a user's would.
    if dim.blocks() * dim.threads() <= 32 {
        let kernel = perf::StreamAlone { targets, count, op, bytes, iters, report: report_at };
        run(gpu, &kernel, dim, limit)?;
    } else {
        let kernel = perf::Stream { targets, count, op, bytes, iters, report: report_at };
        run(gpu, &kernel, dim, limit)?;
    }
    elapsed(report.times(gpu, postings)?)
}

/// The kernel raises word 1 to the complement of the earliest start, and word 2 to the last end.
pub(crate) fn elapsed(times: [u64; 2]) -> Result<Duration> {
    let (start, end) = (!times[0], times[1]);
    let ns =
        end.checked_sub(start).filter(|&ns| ns > 0).context("the device's clock stood still")?;
    Ok(Duration::from_nanos(ns))
}

pub(crate) fn run(gpu: &dyn Gpu, kernel: &dyn SafeKernel, dim: Dim, limit: Duration) -> Result<()> {
    Ok(gpu.launch(kernel, dim, limit)?.wait()?)
}

/// Compiles before anything is measured.
pub(crate) fn load(gpu: &dyn Gpu) -> Result<()> {
    Ok(gpu.load(&perf::IMAGE)?)
}
