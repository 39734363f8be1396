//! Several processes, on one machine or more, whose kernels all count one number of rank 0 up, with
//! fetch-and-add and then with compare-and-swap, over RoCEv2. Every value must come back to exactly
//! one thread of one rank, and the number must end as the count of all.

use crate::common::job::Job;
use crate::dist::counter::Counter;
use crate::dist::rank::Rank;
use crate::dist::table::{Row, Table};
use crate::dist::{self, Load};
use anyhow::{Context as _, Result};
use clap::Args;
use std::time::Duration;
use warpverbs::gpu::{Dim, KernelPtr, SafeKernel};
use warpverbs::kernels::dist as kernels;

/// Kernels of several processes count one number up
#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    load: Load,
}

#[derive(Clone, Copy)]
enum Op {
    Add,
    Swap,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Add => "fetch-add",
            Self::Swap => "compare-swap",
        }
    }
}

pub(crate) fn run(flags: &Flags) -> Result<()> {
    flags.load.check()?;
    let Dim { grid, block, .. } = flags.load.dim(1)?;
    let plan = format!("dist_atomic {} -c {grid} -t {block}", flags.load.plan());
    dist::run(&flags.job, &plan, |rank| sweep(rank, &flags.load))
}

fn sweep(rank: &mut Rank<'_>, load: &Load) -> Result<(Table, String)> {
    let session = rank.session;
    let counter = Counter::new(rank, load)?;
    let mut table = Table::new(session, rank.is_first())?;
    let mut tries = 0;
    for op in [Op::Add, Op::Swap] {
        let (done, time) = row(&counter, rank, load, op).context(op.name())?;
        tries = done;
        table.push(
            session,
            Row { op: Some(op.name()), size: 8, time, count: counter.own(load), sha256: None },
        )?;
    }
    let (all, swaps) = (counter.all(rank, load), counter.own(load));
    let what = format!("0 to {} came back once each, twice", all - 1);
    Ok((table, format!("{what}; {tries} compare-and-swaps of rank 0 for its {swaps}")))
}

/// One kind of atomic. How many this rank needed, and how long the slowest took.
fn row(counter: &Counter, rank: &mut Rank<'_>, load: &Load, op: Op) -> Result<(u64, Duration)> {
    if load.warmup > 0 {
        count_up(counter, rank, op, load.warmup)?;
    }
    let (tries, own) = count_up(counter, rank, op, load.iters)?;
    let slowest = rank.slowest(own)?;
    counter.verify(rank, load)?;
    Ok((tries, slowest))
}

/// All ranks count up from 0.
fn count_up(counter: &Counter, rank: &mut Rank<'_>, op: Op, iters: u32) -> Result<(u64, Duration)> {
    counter.reset(rank)?;
    rank.time(&counter.mesh, counter.dim, |report| -> Box<dyn SafeKernel> {
        let (targets, count) = (counter.targets.clone(), counter.count);
        let found = KernelPtr::new(&counter.found);
        match op {
            Op::Add => Box::new(kernels::AddUp { targets, count, iters, found, report }),
            Op::Swap => Box::new(kernels::SwapUp { targets, count, iters, found, report }),
        }
    })
}
