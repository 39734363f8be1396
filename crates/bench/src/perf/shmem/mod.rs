//! `perf shmem`: calls of kernels on a symmetric heap: messages there and back, single calls,
//! bandwidth, barriers. Ranks are threads of this process, or processes of a launcher.

mod cases;
mod life;
mod rank;
mod yardsticks;

use crate::busy::Watch;
use crate::output::{Columns, Measured, Row};
use crate::rig::machine::on_host;
use crate::rig::plan::{check_iters, check_warmup};
use crate::rig::plot::{Drawn, Output, Panel, print_and_plot};
use crate::rig::ranks::{Ranks, setting};
use crate::units::{self, parse_size};
use anyhow::{Context as _, Result, ensure};
use cases::{Case, Table};
use clap::Args;
use rank::Rank;
use serde::Serialize;
use std::time::Duration;
use warpverbs::gpu::{GpuKind, Opened};
use warpverbs::rendezvous::WorldConfig;
use warpverbs::transport::Device;
pub(super) use yardsticks::{Yardsticks, measure as yardsticks};

/// Options of `perf shmem`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ShmemArgs {
    #[command(flatten)]
    ranks: Ranks,
    /// Which tables
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Table::ALL)]
    tables: Vec<Table>,
    /// Measured calls or rounds of each row
    #[arg(short = 'n', long, default_value_t = 2000)]
    iters: u32,
    /// The same, before measuring
    #[arg(short = 'w', long, default_value_t = 100)]
    warmup: u32,
    /// Bytes of each transfer of the bandwidth rows [default: 64M; 1M on the host]
    #[arg(short = 'e', long, value_parser = parse_size)]
    bytes: Option<u64>,
    /// Transfers of each bandwidth row
    #[arg(long, default_value_t = 20)]
    transfers: u32,
    #[command(flatten)]
    output: Output,
}

/// How long ranks wait for each other and for a kernel.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, Serialize)]
struct ShmemRow {
    what: &'static str,
    /// How the peer was reached.
    route: String,
    /// thread, warp or block.
    by: &'static str,
    blocks: u32,
    threads: u32,
    /// Bytes of shared memory of a block that the caller lends.
    lent: u32,
    bytes: u64,
    /// The fence between the bytes and their notice.
    fence: &'static str,
    /// Whose clock.
    clock: &'static str,
    /// Of one round there and back, or one call: the mean of a loop.
    us: Option<f64>,
    /// Of single rounds, from a second loop that looks at the clock in each.
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    gb_per_s: Option<f64>,
    /// `equal`, or `none moved`.
    data: &'static str,
}

impl Row for ShmemRow {
    fn columns(&self) -> Columns {
        let number = |n: Option<f64>, digits| n.map(|n| format!("{n:.digits$}"));
        vec![
            ("what", self.what.to_owned()),
            ("route", self.route.clone()),
            ("by", self.by.to_owned()),
            ("blocks", self.blocks.to_string()),
            ("threads", self.threads.to_string()),
            ("lent", units::bytes(self.lent.into())),
            ("bytes", units::bytes(self.bytes)),
            ("fence", self.fence.to_owned()),
            ("clock", self.clock.to_owned()),
            ("µs", number(self.us, 2).unwrap_or_default()),
            ("p50", number(self.p50_us, 2).unwrap_or_default()),
            ("p99", number(self.p99_us, 2).unwrap_or_default()),
            ("GB/s", number(self.gb_per_s, 1).unwrap_or_default()),
            ("data", self.data.to_owned()),
        ]
    }
}

impl Drawn for ShmemRow {
    /// Bandwidth against blocks, and what a call or a round takes against its bytes: a line for each
    /// call and group.
    fn panels(rows: &[Self]) -> Vec<Panel> {
        let line = |row: &Self| format!("{}, {}", row.what, row.by);
        let rate = |row: &Self| Some((line(row), (f64::from(row.blocks), row.gb_per_s? * 1e9)));
        // Rows of kernels; the axis of sizes is logarithmic, and 0 bytes have no place on it.
        let time = |row: &Self| match (row.bytes, row.blocks) {
            (0, _) | (_, 0) => None,
            (bytes, _) => Some((line(row), (bytes as f64, row.us? * 1e3))),
        };
        let bandwidth = Panel::of("bandwidth", units::rate, rows.iter().filter_map(rate));
        let times = rows.iter().filter_map(time);
        let times = Panel::of("mean of a round or call", units::nanos, times);
        bandwidth.map(|panel| panel.over("blocks")).into_iter().chain(times).collect()
    }
}

pub(crate) fn run(args: &ShmemArgs) -> Result<()> {
    check_iters(args.iters)?;
    check_warmup(args.warmup)?;
    ensure!((1..=1_000_000).contains(&args.transfers), "--transfers: expected 1 to 1000000");
    args.ranks.run("perf shmem", LIMIT, |config, opened, nic| one_rank(args, config, opened, nic))
}

const PUT_SIGNAL: &str = "put_signal, there and back";
const OWN: &str = "put_signal to itself, and its wait";
const LINE: &str = "a cache line, there and back";

/// The time of kernels on the host beside that of a cache line, if the rows have both.
fn beside_a_line(rows: &[ShmemRow]) -> Option<String> {
    let of = |what| rows.iter().find(|row| row.what == what);
    // Medians, because a mean on a busy machine says how often a thread lost its core.
    let (both, line) = (of(PUT_SIGNAL)?.p50_us?, of(LINE)?.p50_us?);
    let own = 2.0 * of(OWN)?.us?;
    let rest = (both - own) / line.max(f64::MIN_POSITIVE);
    Some(format!(
        "put_signal there and back, {both:.2} µs (p50): {own:.2} for two calls and two waits, the \
         rest is {rest:.2} × a cache line there and back, {line:.2} µs (p50)"
    ))
}

/// All rows, as one rank; rank 0 prints.
fn one_rank(args: &ShmemArgs, config: &WorldConfig, opened: Opened, nic: &Device) -> Result<()> {
    let rank = config.rank;
    let info = opened.gpu.info();
    let (on_host, bulk) = (on_host(info), info.kind != GpuKind::Hip);
    let setting = setting(&opened, nic);
    let bytes = args.bytes.unwrap_or(if on_host { 1 << 20 } else { 1 << 26 });
    let mut rank = Rank::join(config, opened.gpu, nic, bytes, args.iters)
        .with_context(|| format!("rank {rank}"))?;
    let plan = cases::Plan {
        iters: args.iters,
        warmup: args.warmup,
        transfers: args.transfers,
        bytes,
        direct: rank.is_direct(),
        bulk,
        on_host,
    };
    let (watch, mut rows) = (Watch::start(), Vec::new());
    let cases: Vec<Case> = args.tables.iter().flat_map(|table| table.cases(&plan)).collect();
    let end = cases.iter().try_for_each(|case| {
        rows.extend(rank.measure(&plan, case)?);
        Ok(())
    });
    let end = end.and_then(|()| {
        if args.tables.contains(&Table::Life) {
            rows.extend(rank.life(&plan, nic)?);
        }
        Ok(())
    });
    let first = rank.is_first();
    rank.leave(end.as_ref().err());
    if !first {
        return end;
    }
    let notes = beside_a_line(&rows).into_iter().collect();
    let measured = Measured::new("perf shmem", setting, rows).noting(notes).watched(&watch);
    print_and_plot(&measured, end, &args.output)
}
