//! The harness of the examples of several processes: their flags, how they start, meet, and end.
#![allow(dead_code, reason = "no example needs all of it")]

pub(crate) mod counter;
pub(crate) mod heap;
pub(crate) mod mesh;
pub(crate) mod pipeline;
pub(crate) mod places;
mod procs;
pub(crate) mod rank;
pub(crate) mod sweep;
pub(crate) mod table;

use crate::common::{self, Common, Session, within};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rank::Rank;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;
use table::Table;
use warpverbs::gpu::Dim;
use warpverbs::raw::nic::{Config, LinkConfig, LinkKind, UdpConfig};
use warpverbs::rendezvous::{Flags, Launch, World, WorldConfig, WorldError};
use warpverbs_bench::units::parse_size;

/// The longest that any step of a rank may take; a kernel's own deadline is earlier.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The number of this process, and where it meets the others.
#[derive(Args, Clone)]
pub(crate) struct Job {
    #[command(flatten)]
    common: Common,
    /// Number of this process, from 0; without it, a launcher's environment is asked
    #[arg(long)]
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
    /// Starts so many processes on this machine instead, and waits for all of them
    #[arg(long, value_name = "N")]
    procs: Option<u32>,
    /// The same as --procs 2
    #[arg(long, conflicts_with = "procs")]
    two_proc: bool,
    /// End when the standard input does: of a rank that --procs started
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
    /// Address of the interface to use; by default the one that leads to the master
    #[arg(long)]
    bind: Option<IpAddr>,
    /// UDP port; 0 is any, 4791 the standard
    #[arg(long, default_value_t = 0)]
    udp_port: u16,
    /// Link to the others: udp, shm (memory of this machine that all share) or auto
    /// [default: what WARPVERBS_LINK says, or udp]
    #[arg(long)]
    link: Option<LinkKind>,
    /// Seconds to wait for a process that shows no sign of life
    #[arg(long, default_value_t = 30)]
    wait: u64,
}

/// How much is done, by how many.
#[derive(Args, Clone)]
pub(crate) struct Load {
    /// Operations on each queue pair, or of each thread
    #[arg(short = 'n', long, default_value_t = 64)]
    pub(crate) iters: u32,
    /// The same, before time is taken
    #[arg(short = 'w', long, default_value_t = 8)]
    pub(crate) warmup: u32,
    /// Blocks of the kernel [default: as few as will do]
    #[arg(short = 'c', long)]
    pub(crate) blocks: Option<u32>,
    /// Threads of a block, a multiple of 32 [default: as few as will do]
    #[arg(short = 't', long)]
    pub(crate) threads: Option<u32>,
    /// Queue pairs to each peer
    #[arg(short = 'q', long, default_value_t = 1)]
    pub(crate) qps: u32,
}

/// Which sizes of messages.
#[derive(Args, Clone)]
pub(crate) struct Sizes {
    /// Smallest message, as 8, 64K or 1M
    #[arg(short = 'b', long, default_value = "8", value_parser = parse_size)]
    pub(crate) begin: u64,
    /// Largest message
    #[arg(short = 'e', long, default_value = "1M", value_parser = parse_size)]
    pub(crate) end: u64,
    /// Factor from one size to the next
    #[arg(short = 'f', long, default_value_t = 4)]
    pub(crate) factor: u64,
}

impl Load {
    pub(crate) fn check(&self) -> Result<()> {
        within("--iters", self.iters.into(), 1, 1_000_000)?;
        within("--warmup", self.warmup.into(), 0, 1_000_000)?;
        within("--blocks", self.blocks.unwrap_or(1).into(), 1, 1024)?;
        let threads = self.threads.unwrap_or(32);
        within("--threads", threads.into(), 32, 1024)?;
        ensure!(threads.is_multiple_of(32), "--threads is {threads}, expected a multiple of 32");
        within("--qps", self.qps.into(), 1, 256)
    }

    /// The launch that was asked for; it has `warps` warps or more.
    pub(crate) fn dim(&self, warps: u32) -> Result<Dim> {
        let threads = self.threads.unwrap_or(32 * warps.min(32));
        let blocks = self.blocks.unwrap_or(warps.div_ceil(threads / 32));
        ensure!(
            blocks * (threads / 32) >= warps,
            "--blocks {blocks} of --threads {threads} are {} warps, expected {warps} or more",
            blocks * (threads / 32)
        );
        Ok(Dim::new(blocks, threads))
    }

    /// The part of the flags that is the same on all ranks.
    pub(crate) fn plan(&self) -> String {
        format!("-n {} -w {} -q {}", self.iters, self.warmup, self.qps)
    }
}

impl Sizes {
    pub(crate) fn check(&self, most: u64) -> Result<()> {
        within("--begin", self.begin, 1, most)?;
        within("--end", self.end, self.begin, most)?;
        within("--factor", self.factor, 2, 1 << 20)
    }

    pub(crate) fn all(&self) -> Vec<u64> {
        let next = |size: &u64| size.checked_mul(self.factor).filter(|&size| size <= self.end);
        std::iter::successors(Some(self.begin), next).collect()
    }

    pub(crate) fn plan(&self) -> String {
        format!("-b {} -e {} -f {}", self.begin, self.end, self.factor)
    }
}

/// One rank among others that were started with the same plan.
pub(crate) struct Start<'j> {
    job: &'j Job,
    plan: String,
    launch: Launch,
    /// The world that it is to join.
    pub(crate) world: WorldConfig,
}

impl Job {
    /// This process as a rank; nothing, if it has started all ranks and they have ended.
    pub(crate) fn start(&self, plan: String) -> Result<Option<Start<'_>>> {
        within("--wait", self.wait, 1, 86_400)?;
        if let Some(procs) = self.procs.or(self.two_proc.then_some(2)) {
            within("--procs", procs.into(), 2, 64)?;
            return procs::run(procs).map(|()| None);
        }
        if self.until_stdin_ends {
            procs::end_with_launcher();
        }
        let launch = Launch::from_env(&Flags {
            rank: self.rank,
            world_size: self.world_size,
            master_addr: self.master_addr.clone(),
            master_port: self.master_port,
            // Those that --procs started are alone on this machine.
            local_rank: self.rank.filter(|_| self.until_stdin_ends),
            ..Flags::default()
        })?;
        ensure!(launch.world_size >= 2, "the world has one rank, expected two or more");
        let silence = Duration::from_secs(self.wait);
        let world = WorldConfig::new(&launch).timeout(LONGEST).silence(silence);
        Ok(Some(Start { job: self, plan, launch, world }))
    }
}

impl Start<'_> {
    /// Runs `body` in the world that was joined. It gives a table and a sentence for rank 0 to end
    /// with. A rank that fails tells the others why.
    pub(crate) fn run(
        &self,
        world: Result<World, WorldError>,
        body: impl FnOnce(&mut Rank<'_>) -> Result<(Table, String)>,
    ) -> Result<()> {
        let who = || format!("rank {}", self.launch.rank);
        let mut world = world.with_context(who)?;
        let outcome = open(self.job, &self.launch).and_then(|session| {
            let mut rank = Rank { session: &session, world: &mut world };
            rank.agree(&self.plan)?;
            let told = body(&mut rank)?;
            Ok((session, told))
        });
        match outcome {
            Ok((session, (table, what))) => {
                world.leave().with_context(who)?;
                if self.launch.rank != 0 {
                    return Ok(());
                }
                if let Some(link) = session.nic.link() {
                    eprintln!("link: {link}");
                }
                table.passed(session, self.launch.world_size, &what)
            }
            Err(error) => {
                world.fail(&common::one_line(&error));
                Err(error.context(who()))
            }
        }
    }
}

fn open(job: &Job, launch: &Launch) -> Result<Session> {
    let master = (launch.master_addr.as_str(), launch.master_port);
    let own = job.bind.map_or_else(|| own_address(master), Ok)?;
    let bind = SocketAddr::new(own, job.udp_port);
    let at = UdpConfig::at(bind);
    let mut config = Config { link: LinkConfig::Udp(at), ..Config::default() }.with_env()?;
    if let Some(link) = job.link {
        config.link = link.at(at);
    }
    let config = config.for_process(launch.rank);
    Session::open_on(&job.common, config, Some(launch))
}

/// The address of the interface that leads to the master.
fn own_address((host, port): (&str, u16)) -> Result<IpAddr> {
    let unknown = || format!("no address for --master-addr {host}");
    let mut all = (host, port).to_socket_addrs().with_context(unknown)?;
    let to = all.next().with_context(unknown)?;
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Nothing is sent: the system only chooses the address.
    let socket = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    Ok(socket.with_context(|| format!("no way to {to}"))?.ip())
}
