//! A process as a rank of a job: its flags, the world that it joins, its NIC with a link to the others.

use super::{Common, DEADLINE, Session, within};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use warpverbs::rendezvous::{Flags, RankInfo, World, WorldConfig};
use warpverbs::transport::{Context, Endpoint, EndpointConfig, EndpointHandle, LinkKind};

/// The number of this process, and where it meets the others.
#[derive(Args, Clone)]
pub(crate) struct Job {
    #[command(flatten)]
    common: Common,
    /// Number of this process, from 0; without it, a launcher's environment is asked
    #[arg(long, requires = "world_size")]
    rank: Option<u32>,
    /// Number of processes
    #[arg(long)]
    world_size: Option<u32>,
    /// Host of rank 0, where all meet
    #[arg(long)]
    master_addr: Option<String>,
    /// TCP port of rank 0, where all meet
    #[arg(long)]
    master_port: Option<u16>,
    /// Starts this many processes on this machine instead, and waits for all of them
    #[arg(long, value_name = "N", conflicts_with = "rank")]
    procs: Option<u32>,
    /// Address of the interface to use; by default the one that leads to the master
    #[arg(long)]
    bind: Option<IpAddr>,
    /// UDP port; 0 is any, 4791 the standard
    #[arg(long, default_value_t = 0)]
    udp_port: u16,
    /// Seconds to wait for a process that shows no sign of life
    #[arg(long, default_value_t = 30)]
    wait: u64,
}

impl Job {
    /// Runs `body` as a rank of the job, whose ranks have the same `plan`. It gives the words with
    /// which rank 0 ends. With `--procs`, this process starts the ranks instead.
    pub(crate) fn run(
        &self,
        plan: &str,
        body: impl FnOnce(&Session, &mut World) -> Result<String>,
    ) -> Result<()> {
        match self.launch()? {
            Some(launch) => self.run_as(&launch, false, plan, body),
            None => Ok(()),
        }
    }

    /// Which rank this process is; none if it has started the ranks, which have all ended.
    pub(crate) fn launch(&self) -> Result<Option<RankInfo>> {
        within("--wait", self.wait, 1, 86_400)?;
        let Self { rank, world_size, master_addr, master_port, .. } = self.clone();
        let flags = Flags { rank, world_size, master_addr, master_port, ..Flags::default() };
        Ok(match self.procs {
            Some(procs) => RankInfo::here(procs)?,
            None => Some(RankInfo::from_env(&flags)?),
        })
    }

    /// As [`Job::run`] on a rank, which may take the place of one that was killed.
    pub(crate) fn run_as(
        &self,
        launch: &RankInfo,
        comes_back: bool,
        plan: &str,
        body: impl FnOnce(&Session, &mut World) -> Result<String>,
    ) -> Result<()> {
        // A slow rank is waited for as long as it is alive.
        let config = WorldConfig::new(launch).timeout(Duration::from_secs(24 * 3600));
        let config = config.silence(Duration::from_secs(self.wait));
        let who = || format!("rank {}", launch.rank);
        let joined = if comes_back { World::rejoin(&config) } else { World::join(&config) };
        let mut world = joined.with_context(who)?;
        let ended = self.open(&mut world, launch).and_then(|session| {
            // The others have compared theirs already.
            let all = if comes_back { vec![] } else { world.exchange("plan", plan.as_bytes())? };
            for (other, theirs) in all.iter().enumerate() {
                let theirs = String::from_utf8_lossy(theirs);
                ensure!(theirs == plan, "started with `{plan}`, rank {other} with `{theirs}`");
            }
            let told = body(&session, &mut world)?;
            Ok((session, told))
        });
        let (session, told) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // A rank that was killed is first noticed by its silence.
                let lost = error.is::<String>().then(|| world.loss_within(Duration::from_secs(1)));
                let error = lost.flatten().map_or(error, anyhow::Error::from);
                world.fail(&format!("{error:#}").replace('\n', ";"));
                return Err(error.context(who()));
            }
        };
        world.leave().with_context(who)?;
        session.fact("ranks", launch.world_size);
        if launch.rank == 0 { session.passed(&told) } else { Ok(()) }
    }

    fn open(&self, world: &mut World, launch: &RankInfo) -> Result<Session> {
        let reached = world.client().local_addr()?.ip();
        let at = SocketAddr::new(self.bind.unwrap_or(reached), self.udp_port);
        let nics = Context::builder().soft_link(LinkKind::Udp, at).soft_env(Some(launch.rank))?;
        Session::open_on(&self.common, nics, [launch.rank, launch.local_rank.unwrap_or(0)])
    }
}

/// An endpoint to each other rank, with room for `receives`. All ranks meet once more before they post.
pub(crate) fn connect(
    session: &Session,
    world: &mut World,
    receives: u32,
) -> Result<Vec<(u32, Endpoint)>> {
    let (me, ranks) = (world.rank(), world.world_size());
    ensure!(ranks >= 2, "the world has one rank, expected two or more");
    let config = EndpointConfig::for_gpu(&session.gpu).timeout(DEADLINE).recv_depth(receives);
    let config = config.timers(16, 12); // Ranks that share cores may be silent for a while.
    let endpoint = |rank| Ok((rank, session.nic.endpoint(&config)?));
    let mut ours = (0..ranks).map(endpoint).collect::<Result<Vec<_>>>()?;
    let handles: Vec<_> = ours.iter().map(|(_, end)| end.handle().to_bytes()).collect();
    let theirs = world.exchange("endpoints", &handles.concat())?;
    ours.retain(|(rank, _)| *rank != me);
    for (rank, endpoint) in &ours {
        let who = || format!("connecting to rank {rank}");
        let handle = theirs[*rank as usize].chunks(handles[0].len()).nth(me as usize);
        let handle = EndpointHandle::from_bytes(handle.with_context(who)?).with_context(who)?;
        endpoint.connect(&handle).with_context(who)?;
    }
    Ok(ours)
}
