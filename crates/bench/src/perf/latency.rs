//! `perf latency`: one 8-byte WRITE from its post to its completion, beside the raw round trip that
//! no NIC can beat.

use crate::output::{Bound, Columns, Finding, Row};
use crate::rig::cases::{progress, report};
use crate::rig::kernel::{self, Report};
use crate::rig::machine::{self, Pair, Rig, on_host};
use crate::rig::plan::{Mem, Op, Poster, check_iters, check_warmup};
use crate::rig::threads::with_partner;
use crate::rig::{latency, roundtrip};
use crate::stats::Summary;
use crate::units;
use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warpverbs::gpu::{Buffer, Dim, Gpu, KernelPtr, Place};
use warpverbs_test_kernels::perf;

/// Options of `perf latency`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    common: crate::rig::Common,
    /// Measured round trips of each kind
    #[arg(short = 'n', long, default_value_t = 20_000)]
    iters: u32,
    /// Round trips before measuring
    #[arg(short = 'w', long, default_value_t = 1000)]
    warmup: u32,
}

const LIMIT: Duration = Duration::from_secs(60);
const DEPTH: u32 = 1024;

#[derive(Serialize)]
struct LatencyRow {
    what: &'static str,
    time: Summary,
    /// `equal`, or `none moved`.
    data: &'static str,
}

impl Row for LatencyRow {
    fn columns(&self) -> Columns {
        let ns = |ns: u64| units::nanos(ns as f64);
        vec![
            ("round trip", self.what.to_owned()),
            ("p50", ns(self.time.p50_ns)),
            ("p99", ns(self.time.p99_ns)),
            ("max", ns(self.time.max_ns)),
            ("mean", units::nanos(self.time.mean_ns)),
            ("data", self.data.to_owned()),
        ]
    }
}

const CACHE_LINE: &str = "cache line, CPU to CPU";
const HOST_WRITE: &str = "8-byte WRITE, posted by the host";
const FLAG: &str = "flag, kernel to CPU";
const KERNEL_WRITE: &str = "8-byte WRITE, posted by a kernel";
const KERNEL_SINK: &str = "WRITE by a kernel, NIC that only consumes";

pub(crate) fn run(args: &LatencyArgs) -> Result<()> {
    check_iters(args.iters)?;
    check_warmup(args.warmup)?;
    let rig = Rig::open(&args.common)?;
    kernel::load(&*rig.gpu)?;
    let (warmup, iters) = (args.warmup, args.iters);
    let measure = |rows: &mut _| measure(&rig, warmup, iters, rows);
    let findings = |rows: &[LatencyRow]| findings(rows, on_host(rig.gpu.info()));
    report("perf latency", rig.chosen(true), args.common.nic.json, measure, findings)
}

fn measure(rig: &Rig, warmup: u32, iters: u32, rows: &mut Vec<LatencyRow>) -> Result<()> {
    let bar = progress(5);
    let mut add = |what, time, data| {
        rows.push(LatencyRow { what, time, data });
        bar.inc(1);
    };
    let line = roundtrip::cache_line(iters, warmup, LIMIT).context("no round trip in time")?;
    add(CACHE_LINE, line, "none moved");
    let moves = !machine::only_consumes() || rig.nic.info().provider == "soft";
    if moves {
        add(HOST_WRITE, write(rig, Poster::Host, warmup, iters).context(HOST_WRITE)?, "equal");
    }
    add(FLAG, flag(&*rig.gpu, warmup, iters).context(FLAG)?, "none moved");
    if moves {
        let time = write(rig, Poster::Kernel, warmup, iters).context(KERNEL_WRITE)?;
        add(KERNEL_WRITE, time, "equal");
    }
    if rig.only_consumes() {
        add(KERNEL_SINK, unchecked(rig, warmup, iters).context(KERNEL_SINK)?, "none moved");
    }
    bar.finish_and_clear();
    Ok(())
}

/// Of the rows that are there.
fn findings(rows: &[LatencyRow], on_host: bool) -> Vec<Finding> {
    let p50 = |what| rows.iter().find(|r| r.what == what).map(|r| r.time.p50_ns as f64);
    let ratio = |a, b, most: f64| {
        Some(Finding::new(format!("{a} / {b}"), p50(a)? / p50(b)?, Bound::AtMost(most)))
    };
    let mut all = vec![ratio(HOST_WRITE, CACHE_LINE, 4.0)];
    if !on_host {
        all.push(ratio(KERNEL_WRITE, FLAG, 1.5));
        all.push(ratio(KERNEL_WRITE, KERNEL_SINK, 1.2));
    }
    all.into_iter().flatten().collect()
}

fn write(rig: &Rig, poster: Poster, warmup: u32, iters: u32) -> Result<Summary> {
    let pair = Pair::new(rig, 0, rig.pair(poster, DEPTH, LIMIT)?, 8, Mem::Pinned)?;
    pair.prepare(&*rig.gpu, Op::Write)?;
    let time = latency(&*rig.gpu, (poster, &pair), Op::Write, (warmup, iters), LIMIT)?;
    pair.verify(&*rig.gpu, Op::Write, (warmup + iters).into())?;
    Ok(time)
}

/// Against a NIC that moves nothing.
fn unchecked(rig: &Rig, warmup: u32, iters: u32) -> Result<Summary> {
    let link = rig.consuming(rig.usual_placement(), DEPTH, LIMIT)?;
    let pair = Pair::new(rig, 0, link, 8, Mem::Pinned)?;
    latency(&*rig.gpu, (Poster::Kernel, &pair), Op::Write, (warmup, iters), LIMIT)
}

/// Where the two flags lie, on pages' halves of their own.
const TO: u64 = 0;
const FROM: u64 = 2048;

/// A kernel raises a flag in shared memory, a CPU thread answers.
fn flag(gpu: &dyn Gpu, warmup: u32, iters: u32) -> Result<Summary> {
    let flags = gpu.alloc(4096, Place::Shared)?;
    let samples = gpu.alloc(iters as usize * 8, Place::Device)?;
    let report = Report::new(gpu)?;
    let kernel = perf::FlagRoundTrip {
        to: KernelPtr::at(&flags, TO, 8)?,
        from: KernelPtr::at(&flags, FROM, 8)?,
        warmup,
        iters,
        patience_ns: LIMIT.as_nanos() as u64,
        samples: KernelPtr::new(&samples),
        report: report.pointer(),
    };
    let run = || kernel::run(gpu, &kernel, Dim::new(1, 1), LIMIT);
    let (ran, answered) = with_partner(|over| answer(&flags, over), run);
    ran.and(answered)?;
    let samples = kernel::nanos(gpu, &samples, iters, report.times(gpu, &[])?)?;
    Summary::of(samples).context("no samples")
}

fn answer(flags: &Buffer, over: &AtomicBool) -> Result<()> {
    let (to, from) = (flags.region().atomic_u64(TO)?, flags.region().atomic_u64(FROM)?);
    let mut last = 0;
    while !over.load(Ordering::Relaxed) {
        let now = to.load(Ordering::Acquire);
        if now != last {
            last = now;
            from.store(now, Ordering::Release);
        }
    }
    Ok(())
}
