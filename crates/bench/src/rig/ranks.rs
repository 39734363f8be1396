//! Ranks that measure together: threads of this process, or processes of a launcher.

use super::threads::joined;
use crate::output::{Chosen, Setting};
use anyhow::{Context as _, Error, Result, ensure};
use clap::Args;
use std::thread;
use std::time::Duration;
use warpverbs::gpu::{self, Opened};
use warpverbs::rendezvous::{EnvError, Flags, Host, Limits, RankInfo, Server, World, WorldConfig};
use warpverbs::shmem::Heap;
use warpverbs::transport::{Context, Device, VerbsProvider, Way};

/// The devices of all ranks.
#[derive(Args, Clone, Debug)]
pub(crate) struct Ranks {
    /// Where the kernels of each rank run: auto, simt, cuda:N, hip:N, separated by commas; the same one
    /// several times is shared by as many ranks. Under a launcher, which gives rank and world size by
    /// the environment, one for every process
    #[arg(long, value_delimiter = ',', default_values_t = ["auto".to_owned(), "auto".to_owned()])]
    gpus: Vec<String>,
    /// The NIC for ranks that are not reached by loads and stores
    #[arg(long, default_value = "soft", env = "WARPVERBS_NIC")]
    nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    way: Way,
}

impl Ranks {
    /// Calls `one_rank` for every rank, or for that of this process. Ranks wait for each other for
    /// `limit` at most.
    pub(crate) fn run(
        &self,
        job: &str,
        limit: Duration,
        one_rank: impl Fn(&WorldConfig, Opened, &Device) -> Result<()> + Sync,
    ) -> Result<()> {
        match RankInfo::from_env(&Flags::default()) {
            Ok(launch) => return self.run_launched(&launch, limit, one_rank),
            Err(EnvError::NoRank) => {}
            Err(error) => return Err(error.into()),
        }
        ensure!((2..=64).contains(&self.gpus.len()), "--gpus: expected 2 to 64 devices");
        let server = Server::bind("127.0.0.1:0".parse()?, Limits::default())?;
        let (count, port) = (self.gpus.len() as u32, server.local_addr().port());
        let join = |rank| {
            let config = WorldConfig::at(rank, count, "127.0.0.1", port).host(Host::Elsewhere);
            config.job(job).timeout(limit)
        };
        // One for all: a software NIC reaches only itself.
        let nic = self.open_nic()?;
        let opened = self.gpus.iter().zip(0..).map(|(name, rank)| open(name, rank));
        let opened = opened.collect::<Result<Vec<_>>>()?;
        thread::scope(|scope| {
            let start = |(rank, opened)| {
                let (config, nic, one_rank) = (join(rank), &nic, &one_rank);
                scope.spawn(move || one_rank(&config, opened, nic))
            };
            let ranks: Vec<_> = (0..).zip(opened).map(start).collect();
            ranks.into_iter().map(joined).collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// This process as one rank of a launcher's.
    fn run_launched(
        &self,
        launch: &RankInfo,
        limit: Duration,
        one_rank: impl Fn(&WorldConfig, Opened, &Device) -> Result<()>,
    ) -> Result<()> {
        let (by, size) = (launch.launcher, launch.world_size);
        ensure!(size > 1, "expected 2 ranks or more: {by} started {size}");
        let local = launch.local_rank.unwrap_or(0);
        let opened = open(self.gpus.first().map_or("auto", String::as_str), local)?;
        one_rank(&WorldConfig::new(launch).timeout(limit), opened, &self.open_nic()?)
    }

    fn open_nic(&self) -> Result<Device> {
        let verbs = VerbsProvider::default().with_way(self.way);
        Ok(Context::builder().verbs(verbs).build()?.open(self.nic.as_str())?)
    }
}

fn open(name: &str, rank: u32) -> Result<Opened> {
    let choice = name.parse().with_context(|| format!("--gpus: {name}"))?;
    Ok(gpu::open_for_rank(choice, rank)?)
}

/// The device and NIC of a rank, and why they were taken.
pub(crate) fn setting(opened: &Opened, nic: &Device) -> Setting {
    Setting {
        gpu: Some(Chosen::gpu(&*opened.gpu, &opened.why)),
        nic: Chosen::new(nic.info().name.clone(), nic.why()),
    }
}

/// Ends a rank's part in the world, so that no other rank waits for it, and its heap.
pub(crate) fn leave(mut world: World, heap: Heap, failed: Option<&Error>) {
    if let Some(error) = failed {
        world.fail(&format!("{error:#}"));
    } else if let Err(error) = world.barrier("end") {
        tracing::warn!(%error, "ranks do not end together");
    }
    drop(heap);
}
