//! `perf idle-qps`: what idle queue pairs cost a busy one.

use crate::output::{Bound, Columns, Finding, Row};
use crate::rig::NicOnly;
use crate::rig::cases::{each, report};
use crate::rig::host;
use crate::rig::machine::{Link, Pair, Rig};
use crate::rig::plan::{MAX_ITERS, Mem, Op, Poster, within};
use crate::units;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::time::Duration;

/// Options of `perf idle-qps`.
#[derive(Args, Clone, Debug)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    nic: NicOnly,
    /// Idle queue pairs beside the busy one, made in connected twos
    #[arg(long, value_delimiter = ',', default_value = "0,2,16,64,256,1024")]
    idle: Vec<u32>,
    /// 8-byte WRITEs per row
    #[arg(short = 'n', long, default_value_t = 500_000)]
    iters: u32,
}

/// Idle queue pairs at most.
const MAX_IDLE: u32 = 32768;
const LIMIT: Duration = Duration::from_secs(60);
/// Runs of which the best counts: other work on the machine only ever slows one down.
const RUNS: u32 = 3;

#[derive(Serialize)]
struct IdleRow {
    idle: u32,
    messages: u32,
    messages_per_s: f64,
    /// Rate over that of the first row.
    relative: f64,
    data: &'static str,
}

impl Row for IdleRow {
    fn columns(&self) -> Columns {
        vec![
            ("idle QPs", self.idle.to_string()),
            ("message rate", units::per_second(self.messages_per_s)),
            ("relative", format!("{:.2}", self.relative)),
            ("data", self.data.to_owned()),
        ]
    }
}

pub(crate) fn run(args: &IdleArgs) -> Result<()> {
    let mut idle = args.idle.clone();
    idle.sort_unstable();
    for &count in &idle {
        within("--idle", count.into(), 0, MAX_IDLE.into())?;
    }
    within("-n", args.iters.into(), 1, MAX_ITERS.into())?;
    let most = idle.last().copied().unwrap_or(0);
    // The busy pair, the idle ones, and one more where the number is odd.
    let common = args.nic.common();
    let rig = Rig::open_for(&common, (most + 3).next_power_of_two())?;
    let measure = |rows: &mut _| measure(&rig, &idle, args.iters, rows);
    let findings = |rows: &[IdleRow]| {
        rows.last().filter(|row| row.idle >= 1024).map(finding).into_iter().collect()
    };
    report("perf idle-qps", rig.chosen(false), args.nic.json, measure, findings)
}

fn measure(rig: &Rig, idle: &[u32], messages: u32, rows: &mut Vec<IdleRow>) -> Result<()> {
    let busy = Pair::new(rig, 0, rig.pair(Poster::Host, 1024, LIMIT)?, 8, Mem::Pinned)?;
    let mut idlers: Vec<Link> = Vec::new();
    each(
        idle,
        rows,
        |count| format!("{count} idle"),
        |&count, rows| {
            while (idlers.len() as u32) < count.div_ceil(2) {
                idlers.push(rig.pair(Poster::Host, 128, LIMIT)?);
            }
            let rate = best_rate(rig, &busy, messages)?;
            let relative = rows.first().map_or(1.0, |first| rate / first.messages_per_s);
            let idle = 2 * idlers.len() as u32;
            Ok(IdleRow { idle, messages, messages_per_s: rate, relative, data: "equal" })
        },
    )
}

fn finding(row: &IdleRow) -> Finding {
    let what = format!("rate beside {} idle queue pairs over that beside the fewest", row.idle);
    Finding::new(what, row.relative, Bound::AtLeast(0.5))
}

fn best_rate(rig: &Rig, busy: &Pair, iters: u32) -> Result<f64> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        busy.prepare(&*rig.gpu, Op::Write)?;
        best = best.min(host::stream(std::slice::from_ref(busy), Op::Write, iters, LIMIT)?);
        busy.verify(&*rig.gpu, Op::Write, iters.into())?;
    }
    Ok(f64::from(iters) / best.as_secs_f64())
}
