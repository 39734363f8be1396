//! `perf loopback`: messages of every size, by host and by kernel.

use super::row::MessageRow;
use crate::rig::cases::{each, report};
use crate::rig::machine::{Pair, Rig};
use crate::rig::plan::{self, Mem, Op, PlanError, Poster, Span, check_iters, check_warmup};
use crate::rig::receive::receiving;
use crate::rig::{Common, host, kernel, latency};
use crate::units;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::time::Duration;
use warpverbs::gpu::{Dim, Gpu};

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

impl LoopbackArgs {
    /// Sizes and posters, where everything that can be checked without a device is right.
    fn check(&self) -> Result<(Vec<u64>, Vec<Poster>), PlanError> {
        let sizes = self.span.sizes(self.op)?;
        check_iters(self.iters)?;
        check_warmup(self.warmup)?;
        let posters = self.posters()?;
        self.grid()?;
        Ok((sizes, posters))
    }

    fn grid(&self) -> Result<Dim, PlanError> {
        let (blocks, threads) = plan::grid(self.blocks, self.threads)?;
        Ok(Dim::new(blocks, threads))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.span.row_limit)
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
    let (sizes, posters) = args.check()?;
    // Both ends of each are the same NIC's.
    let most = args.span.qps.iter().max().map_or(2, |qps| 2 * qps);
    let rig = Rig::open_for(&args.common, most)?;
    if posters.contains(&Poster::Kernel) {
        kernel::load(&*rig.gpu)?;
    }
    let of = |&poster: &Poster| {
        let sizes = &sizes;
        let on = move |&qps: &u32| sizes.iter().map(move |&bytes| (poster, qps, bytes));
        args.span.qps.iter().flat_map(on)
    };
    let cases: Vec<(Poster, u32, u64)> = posters.iter().flat_map(of).collect();
    let name = |&(poster, qps, bytes): &(Poster, u32, u64)| {
        format!("{poster:?}, {} on {qps} queue pairs", units::bytes(bytes))
    };
    let row = |&(poster, qps, bytes): &_, _: &[MessageRow]| row(&rig, args, poster, qps, bytes);
    let (json, setting) = (args.common.nic.json, rig.chosen(true));
    report("perf loopback", setting, json, |rows| each(&cases, rows, name, row), |_| Vec::new())
}

/// Sets up, prepares, measures, compares.
fn row(rig: &Rig, args: &LoopbackArgs, poster: Poster, qps: u32, bytes: u64) -> Result<MessageRow> {
    let (gpu, op, mem, limit) = (&*rig.gpu, args.op, args.mem, args.limit());
    let pair = |i| Pair::new(rig, i, rig.pair_for(op, poster, DEPTH, limit)?, bytes, mem);
    let pairs: Vec<Pair> = (0..qps as usize).map(pair).collect::<Result<_>>()?;
    pairs.iter().try_for_each(Pair::offer)?;
    let (single, amount) = (&pairs[..1], (args.warmup, args.iters));
    single[0].prepare(gpu, op)?;
    let turns = u64::from(args.warmup) + u64::from(args.iters);
    let latency =
        received(op, single, turns, || latency(gpu, (poster, &single[0]), op, amount, limit))?;
    single[0].verify(gpu, op, turns)?;
    let stream = u64::from(args.iters);
    pairs.iter().try_for_each(|pair| pair.prepare(gpu, op))?;
    let time = received(op, &pairs, stream, || measure_stream(gpu, args, poster, &pairs))?;
    pairs.iter().try_for_each(|pair| pair.verify(gpu, op, stream))?;
    let mut row = MessageRow::new(op, bytes, qps);
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

fn measure_stream(
    gpu: &dyn Gpu,
    args: &LoopbackArgs,
    poster: Poster,
    pairs: &[Pair],
) -> Result<Duration> {
    let (op, iters, limit) = (args.op, args.iters, args.limit());
    match poster {
        Poster::Host => host::stream(pairs, op, iters, limit),
        Poster::Kernel => {
            let postings: Vec<_> = pairs.iter().map(kernel::Posting::from).collect();
            kernel::stream(gpu, &postings, op, iters, args.grid()?, limit)
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

    fn sizes(line: &str) -> Result<Vec<u64>, PlanError> {
        let line = std::iter::once("perf").chain(line.split_whitespace());
        let line = Line::try_parse_from(line).unwrap_or_else(|e| panic!("{e}"));
        line.args.check().map(|(sizes, _)| sizes)
    }

    #[test]
    fn sizes_grow_by_the_factor_and_end_at_the_largest() {
        assert_eq!(sizes("-b 8 -e 1K -f 8").unwrap(), [8, 64, 512, 1024]);
        assert_eq!(sizes("-b 64 -e 64").unwrap(), [64]);
        assert_eq!(sizes("-w 0").map(drop), Ok(()), "a measurement may do without warm-up");
        assert_eq!(sizes("-b 4M").unwrap(), [4 << 20]);
        assert_eq!(sizes("--op atomic").unwrap(), [8]);
    }

    #[test]
    fn a_bad_value_names_its_flag() {
        for (line, words) in [
            ("-b 0", "-b is 0"),
            ("-b 64 -e 8", "-e is 8"),
            ("-e 2G", "-e is"),
            ("-f 1", "-f is 1"),
            ("-n 0", "-n is 0"),
            ("-q 1,0", "-q is 0"),
            ("-q 5000", "-q is 5000"),
            ("-c 0", "-c is 0"),
            ("-t 2000", "-t is 2000, expected 1 to 1024"),
            ("--row-limit 0", "--row-limit is 0"),
            ("--op atomic -e 64", "an atomic is 8 bytes"),
            ("--post host -c 2", "-c has no meaning with --post host"),
            ("--post host -t 2", "-t has no meaning with --post host"),
            ("-q 64 -e 1G", "need 128 GiB, at most 8 GiB is allowed; lower -e or -q"),
        ] {
            let error = sizes(line).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
