//! `perf issue`: how fast WQEs are written, rung for and drained, beside the rate of 64-byte stores
//! to the same ring. The NIC only consumes, unless it is one that executes what it is given.

use crate::output::{Bound, Columns, Finding, Row};
use crate::rig::cases::{each, report};
use crate::rig::kernel::{self, Report};
use crate::rig::machine::{Pair, Rig, on_host};
use crate::rig::plan::{Mem, Op, PlanError, check_qps, within};
use crate::rig::ring::{self, Left};
use crate::rig::{Common, NicOnly};
use crate::units;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::time::Duration;
use warpverbs::gpu::{Dim, Gpu, GpuKind};
use warpverbs::transport::{QueuePlacement, Way};
use warpverbs_test_kernels::perf;

/// Options of `perf issue`.
#[derive(Args, Clone, Debug)]
pub(crate) struct IssueArgs {
    /// Where kernels run: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    gpu: String,
    /// The NIC: soft, which only consumes, or another, which also executes (auto: the best one)
    #[arg(long, default_value = "soft", env = "WARPVERBS_NIC")]
    nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    way: Way,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// WQEs per thread [default: 2000 on a GPU, 50 on the host]
    #[arg(short = 'n', long)]
    iters: Option<u32>,
    /// Queue pairs, one row each
    #[arg(short = 'q', long, value_delimiter = ',', default_value = "1,8,32")]
    qps: Vec<u32>,
    /// Grids as BLOCKSxTHREADS, one row each
    ///
    /// [default: 1x1,1x32,1x128,8x128,32x128,132x128 on a GPU, up to 8x128 on the host]
    #[arg(short = 'g', long, value_delimiter = ',', value_parser = parse_grid)]
    grids: Option<Vec<Dim>>,
    /// WQEBBs of a send queue [default: 8192 on soft, 4096 on a device]
    #[arg(long)]
    depth: Option<u32>,
    /// Where the rings lie [default: both on soft, pinned on a device]
    #[arg(long, value_enum)]
    ring: Option<Ring>,
}

/// Where rings lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ring {
    /// Host memory that the device maps.
    Pinned,
    /// The device's own memory.
    Device,
    /// One after the other.
    Both,
}

/// Default grids. Where the host runs kernels the larger ones would only take longer.
const GRIDS: [Dim; 6] = [
    Dim::new(1, 1),
    Dim::new(1, 32),
    Dim::new(1, 128),
    Dim::new(8, 128),
    Dim::new(32, 128),
    Dim::new(132, 128),
];
const GRIDS_ON_HOST: usize = 4;

const LIMIT: Duration = Duration::from_secs(30);
/// Where the NIC only consumes.
const NONE_MOVED: &str = "none moved";
/// The grid and the rates, in millions a second, that are wanted of it, on one queue pair of an H200, where the NIC only
/// consumes.
const WANTED_GRID: Dim = Dim::new(32, 128);
const WANTED: [(&str, f64); 2] = [("pinned", 150.0), ("device", 500.0)];

#[derive(Serialize)]
struct IssueRow {
    ring: &'static str,
    blocks: u32,
    threads: u32,
    qps: u32,
    wqes: u64,
    wqes_per_s: f64,
    /// The same grid, 64-byte stores to the first of the rings.
    stores_per_s: f64,
    /// WQEs that were left in the rings, read back and parsed.
    parsed: u64,
    /// `equal`, or `none moved`.
    data: &'static str,
}

impl Row for IssueRow {
    fn columns(&self) -> Columns {
        vec![
            ("ring", self.ring.to_owned()),
            ("grid", format!("{} x {}", self.blocks, self.threads)),
            ("QPs", self.qps.to_string()),
            ("WQEs", self.wqes.to_string()),
            ("WQE rate", units::per_second(self.wqes_per_s)),
            ("64 B stores", units::per_second(self.stores_per_s)),
            ("parsed", self.parsed.to_string()),
            ("data", self.data.to_owned()),
        ]
    }
}

fn parse_grid(text: &str) -> Result<Dim, String> {
    let parsed =
        text.split_once('x').and_then(|(b, t)| Some(Dim::new(b.parse().ok()?, t.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not a grid, expected BLOCKSxTHREADS, as in 32x128"))
}

impl IssueArgs {
    fn check(&self) -> Result<(), PlanError> {
        within("-n", self.iters.unwrap_or(1).into(), 1, 1_000_000)?;
        check_qps(&self.qps, 8)?;
        for grid in self.grids.iter().flatten() {
            within("blocks of -g", grid.blocks().into(), 1, 4096)?;
            within("threads of -g", grid.threads().into(), 1, 1024)?;
        }
        let Some(depth) = self.depth else { return Ok(()) };
        within("--depth", depth.into(), 128, 32768)?;
        match depth.is_power_of_two() {
            true => Ok(()),
            false => Err(PlanError::Range {
                flag: "--depth",
                value: depth.into(),
                expected: "a power of two".to_owned(),
            }),
        }
    }

    /// Names for the table, and where the rings go.
    fn placements(&self, rig: &Rig) -> Vec<Placed> {
        // Memory of the SIMT device is host memory whichever way it is asked for.
        if rig.gpu.info().kind == GpuKind::Simt {
            return vec![("host", QueuePlacement::Simt)];
        }
        let all = [("pinned", QueuePlacement::PinnedHost), ("device", QueuePlacement::Device)];
        let usual = if rig.nic.info().provider == "soft" { Ring::Both } else { Ring::Pinned };
        let wanted = |placement| match self.ring.unwrap_or(usual) {
            Ring::Pinned => placement == QueuePlacement::PinnedHost,
            Ring::Device => placement == QueuePlacement::Device,
            Ring::Both => true,
        };
        all.into_iter().filter(|&(_, placement)| wanted(placement)).collect()
    }
}

pub(crate) fn run(args: &IssueArgs) -> Result<()> {
    args.check()?;
    let nic = NicOnly { nic: args.nic.clone(), way: args.way, json: args.json };
    let common = Common { gpu: args.gpu.clone(), nic };
    let rig = Rig::open_for(&common, args.qps.iter().copied().max().unwrap_or(1))?;
    kernel::load(&*rig.gpu)?;
    let findings = |rows: &[IssueRow]| rows.iter().filter_map(finding).collect();
    let measure = |rows: &mut _| measure(&rig, args, rows);
    report("perf issue", rig.chosen(true), args.json, measure, findings)
}

fn measure(rig: &Rig, args: &IssueArgs, rows: &mut Vec<IssueRow>) -> Result<()> {
    let (iters, grids) = match on_host(rig.gpu.info()) {
        true => (50, &GRIDS[..GRIDS_ON_HOST]),
        false => (2000, &GRIDS[..]),
    };
    let iters = args.iters.unwrap_or(iters);
    let grids = args.grids.as_deref().unwrap_or(grids);
    let placements = args.placements(rig);
    // libibverbs counts the longest WQEs there may be, of which a queue of 8192 does not fit.
    let usual = if rig.nic.info().provider == "soft" { 8192 } else { 4096 };
    let depth = args.depth.unwrap_or(usual);
    let of = |&ring: &Placed| {
        let on = move |&qps: &u32| grids.iter().map(move |&grid| (ring, qps, grid));
        args.qps.iter().flat_map(on)
    };
    let cases: Vec<(Placed, u32, Dim)> = placements.iter().flat_map(of).collect();
    let name = |((name, _), qps, grid): &(Placed, u32, Dim)| {
        format!("{name} ring, {}x{} on {qps} queue pairs", grid.grid, grid.block)
    };
    each(&cases, rows, name, |&(ring, qps, grid), _| row(rig, (depth, iters), ring, qps, grid))
}

/// Name for the table, and where the ring goes.
type Placed = (&'static str, QueuePlacement);

fn finding(row: &IssueRow) -> Option<Finding> {
    let (_, least) = WANTED.into_iter().find(|(ring, _)| *ring == row.ring)?;
    let grid = Dim::new(row.blocks, row.threads);
    let alone = row.qps == 1 && row.data == NONE_MOVED;
    let what = format!("M WQE/s, {} ring, one queue pair, 32 x 128 threads", row.ring);
    let finding = || Finding::new(what, row.wqes_per_s / 1e6, Bound::AtLeast(least));
    (alone && grid == WANTED_GRID).then(finding)
}

fn row(
    rig: &Rig,
    (depth, each_posts): (u32, u32),
    (ring, placement): Placed,
    qps: u32,
    grid: Dim,
) -> Result<IssueRow> {
    let pairs: Vec<Pair> = (0..qps as usize)
        .map(|i| Pair::new(rig, i, rig.consuming(placement, depth, LIMIT)?, 8, Mem::Pinned))
        .collect::<Result<_>>()?;
    let moves = !rig.only_consumes();
    if moves {
        pairs.iter().try_for_each(|pair| pair.prepare(&*rig.gpu, Op::Write))?;
    }
    let threads = u64::from(grid.blocks()) * u64::from(grid.threads());
    let each = (threads * u64::from(each_posts)).div_ceil(qps.into());
    let iters = u32::try_from(each).context("WQEs per queue pair")?;
    let postings: Vec<_> = pairs.iter().map(kernel::Posting::from).collect();
    let time = kernel::stream(&*rig.gpu, &postings, Op::Write, iters, grid, LIMIT)?;
    let mut left = Left::default();
    for pair in &pairs {
        left += ring::check(&*rig.gpu, pair, (rig.nic.format(), depth), iters.into())?;
    }
    if moves {
        pairs.iter().try_for_each(|pair| pair.verify(&*rig.gpu, Op::Write, iters.into()))?;
    }
    let stores = stores(&*rig.gpu, &pairs[0], grid, each_posts)?;
    let wqes = u64::from(iters) * u64::from(qps);
    Ok(IssueRow {
        ring,
        blocks: grid.blocks(),
        threads: grid.threads(),
        qps,
        wqes,
        wqes_per_s: wqes as f64 / time.as_secs_f64(),
        stores_per_s: (threads * u64::from(each_posts)) as f64 / stores.as_secs_f64(),
        parsed: left.wqes,
        data: if moves { "equal" } else { NONE_MOVED },
    })
}

/// Meaningless stores by every thread of the grid. The queue pair cannot be used afterwards.
fn stores(gpu: &dyn Gpu, pair: &Pair, grid: Dim, rounds: u32) -> Result<Duration> {
    let report = Report::new(gpu)?;
    let qp = pair.link.near.device_qp();
    kernel::run(gpu, &perf::RawStores { qp, rounds, report: report.pointer() }, grid, LIMIT)?;
    kernel::elapsed(report.times(gpu, &[])?)
}
