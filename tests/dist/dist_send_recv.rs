//! Several processes, on one machine or more, in each of which a kernel sends messages to all others
//! and receives theirs, over RoCEv2. The kernel checks length, order and immediate of every message.

use crate::dist::mesh::{Link, Mesh};
use crate::dist::places::{self, WINDOWS, window};
use crate::dist::sweep::{Sweep, Work};
use crate::dist::{self, Load, rank::Rank};
use anyhow::{Result, ensure};
use clap::Args;
use std::time::Duration;
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs::kernels::{dist as kernels, loopback};
use warpverbs::transport::{Access, MemoryRegion};

/// Kernels of several processes send each other messages
#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    sweep: Sweep,
}

pub(crate) fn run(Flags { sweep }: &Flags) -> Result<()> {
    dist::run(&sweep.job, &sweep.plan("dist_send_recv", 64 << 20)?, |rank| {
        let work = Post::new(rank, sweep)?;
        sweep.rows(rank, &work)
    })
}

/// Everything that a kernel needs to exchange messages with all others.
struct Post {
    mesh: Mesh,
    /// The messages, to all the same: one message more than the others have places for.
    source: MemoryRegion,
    /// The memory that each link receives to.
    inboxes: Vec<MemoryRegion>,
    peers: KernelPtr<kernels::Peer>,
    dim: Dim,
}

impl Work for Post {
    fn verdict(&self, ranks: u32) -> String {
        format!("every message at {ranks} ranks once and in order")
    }

    fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    fn received(&self, size: u64) -> Vec<(&MemoryRegion, u64)> {
        self.inboxes.iter().map(|inbox| (inbox, window(size) * size)).collect()
    }

    fn row(&self, rank: &mut Rank<'_>, load: &Load, row: usize, size: u64) -> Result<Duration> {
        places::prepare(rank, &self.source, &self.inboxes, row, size)?;
        if load.warmup > 0 {
            self.exchange(rank, size, load.warmup)?;
        }
        let own = self.exchange(rank, size, load.iters)?;
        let slowest = rank.slowest(own)?;
        for (link, inbox) in self.mesh.links().zip(&self.inboxes) {
            places::verify(rank, (link.peer, inbox), row, size, load.iters)?;
        }
        rank.barrier("verified")?;
        Ok(slowest)
    }
}

impl Post {
    fn new(rank: &mut Rank<'_>, flags: &Sweep) -> Result<Self> {
        rank.session.gpu.load(&kernels::IMAGE)?;
        rank.session.gpu.load(&loopback::IMAGE)?;
        let room = |more| places::room(&flags.sizes.all(), more);
        let mesh = Mesh::new(rank, |_| true, flags.load.qps, WINDOWS.1 as u32)?;
        let source = rank.memory(room(1), Access::empty())?;
        let inboxes = mesh.links().map(|_| rank.memory(room(0), Access::LOCAL_WRITE));
        let inboxes = inboxes.collect::<Result<Vec<_>>>()?;
        let row = |(link, inbox): (&Link, &MemoryRegion)| {
            let (qp, local) = (link.endpoint.device_qp(), source.local().into());
            kernels::Peer { qp, local, inbox: inbox.local().into() }
        };
        let rows: Vec<_> = mesh.links().zip(&inboxes).map(row).collect();
        let peers = KernelPtr::upload(&*rank.session.gpu, &rows)?;
        // Two for each queue pair: one sends, one receives.
        let dim = flags.load.dim(2 * u32::try_from(mesh.len())?)?;
        Ok(Self { mesh, source, inboxes, peers, dim })
    }

    /// Kernels send `messages` on every link and receive as many.
    fn exchange(&self, rank: &mut Rank<'_>, size: u64, messages: u32) -> Result<Duration> {
        let (count, bytes) = (u32::try_from(self.mesh.len())?, u32::try_from(size)?);
        let window = u32::try_from(window(size))?;
        rank.time(&self.mesh, Dim::new(1, 32), |report| {
            let peers = self.peers.clone();
            Box::new(kernels::Offer { peers, count, bytes, window, messages, report })
        })?;
        rank.barrier("offered")?;
        let (wrong, took) = rank.time(&self.mesh, self.dim, |report| {
            let peers = self.peers.clone();
            Box::new(kernels::Exchange { peers, count, bytes, window, messages, report })
        })?;
        ensure!(wrong == 0, "{wrong} messages have another length, order or immediate than sent");
        Ok(took)
    }
}
