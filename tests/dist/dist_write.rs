//! Several processes, on one machine or more, in each of which a kernel writes into the memory of
//! all others over RoCEv2. A table of sizes; the bytes of every row are compared.

use crate::dist::mesh::{Inbox, Mesh, fill, seed, wrong_bytes};
use crate::dist::sweep::{Sweep, Work};
use crate::dist::{self, Load, rank::Rank};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::time::Duration;
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs::kernels::{dist as kernels, loopback};
use warpverbs::transport::{Access, MemoryRegion};

/// Kernels of several processes write into each other's memory
#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    sweep: Sweep,
}

pub(crate) fn run(Flags { sweep }: &Flags) -> Result<()> {
    dist::run(&sweep.job, &sweep.plan("dist_write", 1 << 30)?, |rank| {
        let work = Writer::new(rank, sweep)?;
        sweep.rows(rank, &work)
    })
}

/// Everything that a kernel needs to write to all others.
struct Writer {
    mesh: Mesh,
    inboxes: Vec<Inbox>,
    /// The payload, to all the same.
    source: MemoryRegion,
    targets: KernelPtr<kernels::Target>,
    dim: Dim,
}

impl Work for Writer {
    fn verdict(&self, ranks: u32) -> String {
        format!("every byte at {ranks} ranks as it was sent")
    }

    fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    fn received(&self, size: u64) -> Vec<(&MemoryRegion, u64)> {
        self.inboxes.iter().map(|inbox| (&inbox.own, size)).collect()
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
}

impl Writer {
    fn new(rank: &mut Rank<'_>, flags: &Sweep) -> Result<Self> {
        let bytes = flags.sizes.end;
        rank.session.gpu.load(&kernels::IMAGE)?;
        rank.session.gpu.load(&loopback::IMAGE)?;
        let source = rank.memory(bytes, Access::empty())?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let inboxes = rank.inboxes(|rank| rank.memory(bytes, access))?;
        let mesh = Mesh::new(rank, |_| true, flags.load.qps, 0)?;
        let mut rows = Vec::new();
        for link in mesh.links() {
            let inbox = inboxes.iter().find(|inbox| inbox.peer == link.peer);
            let to = inbox.context("no inbox for a peer")?.theirs;
            let (qp, local) = (link.endpoint.device_qp(), source.local().into());
            rows.push(kernels::Target { qp, local, remote: to.into() });
        }
        let targets = KernelPtr::upload(&*rank.session.gpu, &rows)?;
        Ok(Self { mesh, inboxes, source, targets, dim: flags.load.dim(1)? })
    }

    /// A kernel writes `iters` messages on every link.
    fn write(&self, rank: &mut Rank<'_>, size: u64, iters: u32) -> Result<Duration> {
        let (count, bytes) = (u32::try_from(self.mesh.len())?, u32::try_from(size)?);
        let (_, took) = rank.time(&self.mesh, self.dim, |report| {
            let targets = self.targets.clone();
            Box::new(kernels::WriteAll { targets, count, bytes, iters, report })
        })?;
        Ok(took)
    }
}
