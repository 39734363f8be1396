//! Several processes, on one machine or more, in each of which a kernel writes into the memory of
//! all others over RoCEv2. A table of sizes; the bytes of every row are compared.
//!
//! ```text
//! dist_write --procs 2
//! dist_write --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;
mod dist;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use dist::mesh::{Inbox, Mesh, fill, seed, wrong_bytes};
use dist::rank::Rank;
use dist::table::{Row, Table};
use dist::{Job, Load, Sizes};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs::kernels::{loopback, perf};
use warpverbs::transport::{Access, MemoryRegion};

/// Kernels of several processes write into each other's memory
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    load: Load,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        flags.sizes.check(1 << 30)?;
        flags.load.check()?;
        let plan = format!("dist_write {} {}", flags.sizes.plan(), flags.load.plan());
        dist::run(&flags.job, &plan, |rank| sweep(rank, &flags))
    })
}

fn sweep(rank: &mut Rank<'_>, flags: &Flags) -> Result<(Table, String)> {
    let (load, session) = (&flags.load, rank.session);
    let writer = Writer::new(rank, flags)?;
    let mut table = Table::new(session, rank.is_first())?;
    for (row, size) in flags.sizes.all().into_iter().enumerate() {
        let time = writer.row(rank, load, row, size).with_context(|| format!("{size} bytes"))?;
        let count = u64::from(load.iters) * writer.mesh.len() as u64;
        table.push(session, Row { op: None, size, time, count })?;
    }
    let (sizes, ranks) = (table.len(), rank.world_size());
    Ok((table, format!("{sizes} sizes, every byte at {ranks} ranks as it was sent")))
}

/// What a kernel needs to write to all others.
struct Writer {
    mesh: Mesh,
    inboxes: Vec<Inbox>,
    /// What is sent, to all the same.
    source: MemoryRegion,
    targets: KernelPtr,
    dim: Dim,
}

impl Writer {
    fn new(rank: &mut Rank<'_>, flags: &Flags) -> Result<Self> {
        let bytes = flags.sizes.end;
        rank.session.gpu.load(&perf::IMAGE)?;
        rank.session.gpu.load(&loopback::IMAGE)?;
        let source = rank.memory(bytes, Access::empty())?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let inboxes = rank.inboxes(|rank| rank.memory(bytes, access))?;
        let mesh = Mesh::new(rank, |_| true, flags.load.qps, 0)?;
        let mut rows = Vec::new();
        for link in mesh.links() {
            let inbox = inboxes.iter().find(|inbox| inbox.peer == link.peer);
            let to = inbox.context("no inbox for a peer")?.theirs;
            rows.push((link, [source.addr(), to.addr()], [source.lkey(), to.rkey()]));
        }
        let targets = rank.targets(&rows)?;
        Ok(Self { mesh, inboxes, source, targets, dim: flags.load.dim(1)? })
    }

    /// One size: new contents everywhere, so that nothing of an earlier row passes for this one's;
    /// the WRITEs; and a look at what came. How long the slowest rank took.
    fn row(&self, rank: &mut Rank<'_>, load: &Load, row: usize, size: u64) -> Result<Duration> {
        let session = rank.session;
        fill(session, KernelPtr::new(self.source.buffer()), size, seed(rank.number(), row))?;
        for inbox in &self.inboxes {
            fill(session, KernelPtr::new(inbox.own.buffer()), size, !seed(inbox.peer, row))?;
        }
        rank.barrier("prepared")?;
        if load.warmup > 0 {
            self.write(rank, size, load.warmup)?;
        }
        let own = self.write(rank, size, load.iters)?;
        // All WRITEs of all ranks are complete behind this.
        let slowest = rank.slowest(own)?;
        for inbox in &self.inboxes {
            let seed = seed(inbox.peer, row);
            let wrong = wrong_bytes(session, KernelPtr::new(inbox.own.buffer()), size, seed)?;
            ensure!(wrong == 0, "{wrong} of {size} bytes from rank {} are wrong", inbox.peer);
        }
        rank.barrier("verified")?;
        Ok(slowest)
    }

    /// A kernel writes `iters` messages on every link.
    fn write(&self, rank: &mut Rank<'_>, size: u64, iters: u32) -> Result<Duration> {
        let (count, bytes) = (u32::try_from(self.mesh.len())?, u32::try_from(size)?);
        let (_, took) = rank.time(&self.mesh, self.dim, |report| {
            let targets = self.targets.clone();
            Box::new(perf::Stream { targets, count, op: 0, bytes, iters, report })
        })?;
        Ok(took)
    }
}
