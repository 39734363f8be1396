//! `perf loopback`: messages of every size, by host and by kernel.

use super::row::MessageRow;
use crate::busy::Watch;
use crate::output::Measured;
use crate::rig::cases::each;
use crate::rig::machine::{Pair, Rig};
use crate::rig::plan::{self, Mem, Op, PlanError, Poster, Span, check_iters, check_warmup};
use crate::rig::receive::receiving;
use crate::rig::{Common, host, kernel};
use crate::stats::Summary;
use crate::units;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use std::time::Duration;
use warpverbs::gpu::Dim;

/// WQEBBs of a send queue.
const DEPTH: u32 = 1024;

/// Options of `perf loopback`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoopbackArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    span: Span,
    /// Measured operations per queue pair and row
    #[arg(short = 'n', long, default_value_t = 1000)]
    iters: u32,
    /// Operations before measuring
    #[arg(short = 'w', long, default_value_t = 100)]
    warmup: u32,
    /// Blocks of a posting kernel [default: 1]
    #[arg(short = 'c', long)]
    blocks: Option<u32>,
    /// Threads per block of a posting kernel [default: 32]
    #[arg(short = 't', long)]
    threads: Option<u32>,
    /// The poster
    #[arg(long, value_enum, default_value = "both")]
    post: Posters,
    /// The operation that is posted
    #[arg(long, value_enum, default_value = "write")]
    op: Op,
    /// Where payloads lie
    #[arg(long, value_enum, default_value = "device")]
    mem: Mem,
}

/// As [`Poster`], or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Posters {
    /// A CPU thread.
    Host,
    /// A kernel.
    Kernel,
    /// A CPU thread, then a kernel.
    Both,
}

/// A checked request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    sizes: Vec<u64>,
    qps: Vec<u32>,
    posters: Vec<Poster>,
    op: Op,
    mem: Mem,
    iters: u32,
    warmup: u32,
    blocks: u32,
    threads: u32,
    row_limit: Duration,
}

impl LoopbackArgs {
    /// Checks everything that can be checked without a device.
    fn plan(&self) -> Result<Plan, PlanError> {
        let sizes = self.span.sizes(self.op)?;
        check_iters(self.iters)?;
        check_warmup(self.warmup)?;
        let posters = self.posters()?;
        let (blocks, threads) = plan::grid(self.blocks, self.threads)?;
        Ok(Plan {
            sizes,
            qps: self.span.qps.clone(),
            posters,
            op: self.op,
            mem: self.mem,
            iters: self.iters,
            warmup: self.warmup,
            blocks,
            threads,
            row_limit: Duration::from_secs(self.span.row_limit),
        })
    }

    fn posters(&self) -> Result<Vec<Poster>, PlanError> {
        let why = "they shape a kernel";
        match self.post {
            Posters::Host if self.blocks.is_some() => {
                Err(PlanError::Conflict { flag: "-c", with: "--post host", why })
            }
            Posters::Host if self.threads.is_some() => {
                Err(PlanError::Conflict { flag: "-t", with: "--post host", why })
            }
            Posters::Host => Ok(vec![Poster::Host]),
            Posters::Kernel => Ok(vec![Poster::Kernel]),
            Posters::Both => Ok(vec![Poster::Host, Poster::Kernel]),
        }
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
    measured.watched(&watch).print_up_to(end, args.common.nic.json)
}

fn measure(rig: &Rig, plan: &Plan, rows: &mut Vec<MessageRow>) -> Result<()> {
    let of = |&poster: &Poster| {
        let on = move |&qps: &u32| plan.sizes.iter().map(move |&bytes| (poster, qps, bytes));
        plan.qps.iter().flat_map(on)
    };
    let cases: Vec<(Poster, u32, u64)> = plan.posters.iter().flat_map(of).collect();
    let name = |&(poster, qps, bytes): &(Poster, u32, u64)| {
        format!("{poster:?}, {} on {qps} queue pairs", units::bytes(bytes))
    };
    each(&cases, rows, name, |&(poster, qps, bytes), _| row(rig, plan, poster, qps, bytes))
}

/// Sets up, prepares, measures, compares.
fn row(rig: &Rig, plan: &Plan, poster: Poster, qps: u32, bytes: u64) -> Result<MessageRow> {
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
    let mut row = MessageRow::new(plan.op, bytes, qps);
    (row.post, row.latency) = (Some(poster), Some(latency));
    row.add_rate(stream * u64::from(qps), time);
    Ok(row)
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LoopbackArgs,
    }

    fn plan(line: &str) -> Result<Plan, PlanError> {
        Line::try_parse_from(std::iter::once("perf").chain(line.split_whitespace()))
            .unwrap_or_else(|e| panic!("{e}"))
            .args
            .plan()
    }

    #[test]
    fn sizes_grow_by_the_factor_and_end_at_the_largest() {
        assert_eq!(plan("-b 8 -e 1K -f 8").unwrap().sizes, [8, 64, 512, 1024]);
        assert_eq!(plan("-b 64 -e 64").unwrap().sizes, [64]);
        assert_eq!(plan("-w 0").unwrap().warmup, 0, "a measurement may do without warm-up");
        assert_eq!(plan("-b 4M").unwrap().sizes, [4 << 20]);
        assert_eq!(plan("--op atomic").unwrap().sizes, [8]);
    }

    #[test]
    fn a_value_out_of_range_names_its_flag() {
        for (line, named) in [
            ("-b 0", "-b"),
            ("-b 64 -e 8", "-e"),
            ("-e 2G", "-e"),
            ("-f 1", "-f"),
            ("-n 0", "-n"),
            ("-q 1,0", "-q"),
            ("-q 5000", "-q"),
            ("-c 0", "-c"),
            ("-t 2000", "-t"),
            ("--row-limit 0", "--row-limit"),
        ] {
            match plan(line) {
                Err(PlanError::Range { flag, .. }) => assert_eq!(flag, named, "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(matches!(plan("--op atomic -e 64"), Err(PlanError::Conflict { .. })));
        assert!(matches!(plan("--post host -c 2"), Err(PlanError::Conflict { flag: "-c", .. })));
        assert!(matches!(plan("--post host -t 2"), Err(PlanError::Conflict { flag: "-t", .. })));
        let error = plan("-q 64 -e 1G").unwrap_err().to_string();
        assert!(error.contains("128 GiB") && error.contains("lower -e or -q"), "{error}");
    }
}
