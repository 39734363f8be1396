//! `perf memcpy`: large messages beside the `memcpy` of the same buffers.

use crate::output::{Bound, Columns, Finding, Row};
use crate::rig::NicOnly;
use crate::rig::cases::{each, report};
use crate::rig::host;
use crate::rig::machine::{Pair, Rig};
use crate::rig::plan::{Mem, Op, PlanError, Poster, check_iters};
use crate::units::{self, parse_size};
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};
use warpverbs::raw::mem::{Progress, copy};

/// Options of `perf memcpy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MemcpyArgs {
    #[command(flatten)]
    nic: NicOnly,
    /// Smallest message (K, M, G are powers of 1024)
    #[arg(short = 'b', long, value_parser = parse_size, default_value = "1M")]
    min: u64,
    /// Largest message
    #[arg(short = 'e', long, value_parser = parse_size, default_value = "64M")]
    max: u64,
    /// Factor from one message size to the next
    #[arg(short = 'f', long, default_value_t = 8)]
    factor: u64,
    /// Messages per size [default: 2 GiB in all]
    #[arg(short = 'n', long)]
    iters: Option<u32>,
}

/// Bytes per size unless the user says how many messages.
const VOLUME: u64 = 2 << 30;
/// Messages in flight at most.
const DEPTH: u32 = 128;
/// Turns that NIC and memcpy take. The best of each counts: other work on the machine only ever
/// slows one down.
const ROUNDS: u32 = 5;
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct MemcpyRow {
    bytes: u64,
    messages: u32,
    nic_bytes_per_s: f64,
    memcpy_bytes_per_s: f64,
    ratio: f64,
    data: &'static str,
}

impl Row for MemcpyRow {
    fn columns(&self) -> Columns {
        vec![
            ("size", units::bytes(self.bytes)),
            ("messages", self.messages.to_string()),
            ("NIC", units::rate(self.nic_bytes_per_s)),
            ("memcpy", units::rate(self.memcpy_bytes_per_s)),
            ("ratio", format!("{:.3}", self.ratio)),
            ("data", self.data.to_owned()),
        ]
    }
}

impl MemcpyArgs {
    fn sizes(&self) -> Result<Vec<u64>, PlanError> {
        self.iters.map(check_iters).transpose()?;
        crate::rig::plan::sizes(Op::Write, self.min, Some(self.max), self.factor)
    }
}

pub(crate) fn run(args: &MemcpyArgs) -> Result<()> {
    let sizes = args.sizes()?;
    let common = args.nic.common();
    let rig = Rig::open(&common)?;
    let measure = |rows: &mut _| measure(&rig, args, &sizes, rows);
    let findings =
        |rows: &[MemcpyRow]| rows.iter().filter(|row| row.bytes >= 1 << 20).map(finding).collect();
    report("perf memcpy", rig.chosen(false), args.nic.json, measure, findings)
}

fn measure(rig: &Rig, args: &MemcpyArgs, sizes: &[u64], rows: &mut Vec<MemcpyRow>) -> Result<()> {
    let count = |bytes: u64| (VOLUME / bytes).clamp(4, 20_000) as u32;
    let measure =
        |&bytes: &u64, _: &[MemcpyRow]| row(rig, bytes, args.iters.unwrap_or_else(|| count(bytes)));
    each(sizes, rows, |&bytes| units::bytes(bytes), measure)
}

fn finding(row: &MemcpyRow) -> Finding {
    let what = format!("rate at {} over memcpy", units::bytes(row.bytes));
    Finding::new(what, row.ratio, Bound::AtLeast(0.9))
}

fn row(rig: &Rig, bytes: u64, iters: u32) -> Result<MemcpyRow> {
    let pair = Pair::new(rig, 0, rig.pair(Poster::Host, DEPTH, LIMIT)?, bytes, Mem::Pinned)?;
    let gpu = &*rig.gpu;
    let each = iters.div_ceil(ROUNDS);
    let (mut nic, mut yardstick) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        // Also touches every page before anything is timed.
        pair.prepare(gpu, Op::Write)?;
        yardstick = yardstick.min(memcpy(&pair, each)?);
        pair.prepare(gpu, Op::Write)?;
        nic = nic.min(host::stream(std::slice::from_ref(&pair), Op::Write, each, LIMIT)?);
        pair.verify(gpu, Op::Write, each.into())?;
    }
    let rate = |time: Duration| bytes as f64 * f64::from(each) / time.as_secs_f64();
    let (nic, yardstick) = (rate(nic), rate(yardstick));
    Ok(MemcpyRow {
        bytes,
        messages: each * ROUNDS,
        nic_bytes_per_s: nic,
        memcpy_bytes_per_s: yardstick,
        ratio: nic / yardstick,
        data: "equal",
    })
}

fn memcpy(pair: &Pair, iters: u32) -> Result<Duration> {
    let start = Instant::now();
    for _ in 0..iters {
        match copy(pair.remote.region(), 0, pair.local.region(), 0, pair.local.len())? {
            Progress::Done => {}
            Progress::Pending(_) => bail!("the buffers are not host memory"),
        }
    }
    Ok(start.elapsed())
}
