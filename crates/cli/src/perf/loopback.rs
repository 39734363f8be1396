//! `perf loopback`: messages of every size, by host and by kernel.

use super::busy::Watch;
use super::output::{Measured, Row, progress};
use super::plan::{LoopbackArgs, Op, Plan, Poster};
use super::receive::receiving;
use super::rig::{Pair, Rig};
use super::{host, kernel};
use crate::stats::Summary;
use crate::units;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::time::Duration;
use warpverbs::gpu::Dim;

/// WQEBBs of a send queue.
const DEPTH: u32 = 1024;

#[derive(Serialize)]
struct LoopbackRow {
    post: Poster,
    op: Op,
    bytes: u64,
    qps: u32,
    /// Operations behind the rate.
    messages: u64,
    /// One operation at a time, on one queue pair.
    latency: Summary,
    bytes_per_s: f64,
    messages_per_s: f64,
    /// `equal`: nothing else is ever printed.
    data: &'static str,
}

impl Row for LoopbackRow {
    const HEADS: &'static [&'static str] = &[
        "post",
        "op",
        "size",
        "QPs",
        "p50",
        "p99",
        "max",
        "mean",
        "bandwidth",
        "message rate",
        "data",
    ];

    fn cells(&self) -> Vec<String> {
        let ns = |ns: u64| units::nanos(ns as f64);
        vec![
            format!("{:?}", self.post).to_lowercase(),
            self.op.word().to_owned(),
            units::bytes(self.bytes),
            self.qps.to_string(),
            ns(self.latency.p50_ns),
            ns(self.latency.p99_ns),
            ns(self.latency.max_ns),
            units::nanos(self.latency.mean_ns),
            units::rate(self.bytes_per_s),
            units::per_second(self.messages_per_s),
            self.data.to_owned(),
        ]
    }
}

pub(crate) fn run(args: &LoopbackArgs) -> Result<()> {
    let plan = args.plan()?;
    // Both ends of each are the same NIC's.
    let most = plan.qps.iter().max().map_or(2, |qps| 2 * qps);
    let rig = Rig::open_for(&args.common, most)?;
    if plan.posters.contains(&Poster::Kernel) {
        kernel::load(&*rig.gpu)?;
    }
    let (watch, mut rows) = (Watch::start(), Vec::new());
    let end = measure(&rig, &plan, &mut rows);
    let measured = Measured::new("perf loopback", rig.chosen(true), rows);
    measured.watched(&watch).print_up_to(end, args.common.json)
}

fn measure(rig: &Rig, plan: &Plan, rows: &mut Vec<LoopbackRow>) -> Result<()> {
    let bar = progress(plan.posters.len() * plan.qps.len() * plan.sizes.len());
    for &poster in &plan.posters {
        for &qps in &plan.qps {
            for &bytes in &plan.sizes {
                bar.set_message(format!("{poster:?} {} × {qps}", units::bytes(bytes)));
                let row = row(rig, plan, poster, qps, bytes).with_context(|| {
                    format!("{poster:?}, {} on {qps} queue pairs", units::bytes(bytes))
                })?;
                rows.push(row);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Sets up, prepares, measures, compares.
fn row(rig: &Rig, plan: &Plan, poster: Poster, qps: u32, bytes: u64) -> Result<LoopbackRow> {
    let pairs: Vec<Pair> = (0..qps as usize)
        .map(|i| {
            Pair::new(
                rig,
                i,
                rig.pair_for(plan.op, poster, DEPTH, plan.row_limit)?,
                bytes,
                plan.mem,
            )
        })
        .collect::<Result<_>>()?;
    pairs.iter().try_for_each(Pair::offer)?;
    let single = &pairs[..1];
    single[0].prepare(&*rig.gpu, plan.op)?;
    let turns = u64::from(plan.warmup) + u64::from(plan.iters);
    let latency = received(plan.op, single, turns, || measure_latency(rig, plan, poster, single))?;
    single[0].verify(&*rig.gpu, plan.op, turns)?;
    let stream = u64::from(plan.iters);
    pairs.iter().try_for_each(|pair| pair.prepare(&*rig.gpu, plan.op))?;
    let time = received(plan.op, &pairs, stream, || measure_stream(rig, plan, poster, &pairs))?;
    pairs.iter().try_for_each(|pair| pair.verify(&*rig.gpu, plan.op, stream))?;
    let messages = stream * u64::from(qps);
    let messages_per_s = messages as f64 / time.as_secs_f64();
    Ok(LoopbackRow {
        post: poster,
        op: plan.op,
        bytes,
        qps,
        messages,
        latency,
        bytes_per_s: messages_per_s * bytes as f64,
        messages_per_s,
        data: "equal",
    })
}

/// Runs `work`, beside a thread that posts receives if the operation needs them.
fn received<T>(
    op: Op,
    pairs: &[Pair],
    messages: u64,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match op {
        Op::Send => receiving(pairs, messages, work),
        _ => work(),
    }
}

fn measure_latency(rig: &Rig, plan: &Plan, poster: Poster, pairs: &[Pair]) -> Result<Summary> {
    let Plan { op, warmup, iters, row_limit: limit, .. } = *plan;
    match poster {
        Poster::Host => host::latency(&pairs[0], op, warmup, iters, limit),
        Poster::Kernel => {
            let posting = kernel::Posting::from(&pairs[0]);
            let samples = kernel::latency(&*rig.gpu, posting, op, warmup, iters, limit)?;
            Summary::of(samples).context("no samples")
        }
    }
}

fn measure_stream(rig: &Rig, plan: &Plan, poster: Poster, pairs: &[Pair]) -> Result<Duration> {
    let Plan { op, iters, row_limit: limit, .. } = *plan;
    let dim = Dim::new(plan.blocks, plan.threads);
    match poster {
        Poster::Host => host::stream(pairs, op, iters, limit),
        Poster::Kernel => {
            let postings: Vec<_> = pairs.iter().map(kernel::Posting::from).collect();
            kernel::stream(&*rig.gpu, &postings, op, iters, dim, limit)
        }
    }
}
