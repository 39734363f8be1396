//! Several processes, on one machine or more, in each of which a kernel writes into the memory of
//! all others over RoCEv2. A table of sizes; the bytes of every row are compared.
//!
//! ```text
//! dist_write --two-proc
//! dist_write --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

#[path = "../common/mod.rs"]
mod common;
mod mesh;
mod two_proc;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::{Common, Session};
use mesh::Mesh;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::nic::{Config, LinkConfig, UdpConfig};
use warpverbs::transport::Context;
use warpverbs_rendezvous as rendezvous;
use warpverbs_units::parse_size;

/// Kernels of several processes write into each other's memory
#[derive(Parser)]
#[command(version)]
struct Flags {
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
    /// Starts two processes on this machine instead, and waits for both
    #[arg(long)]
    two_proc: bool,
    /// Address of the interface to use; by default the one that leads to the master
    #[arg(long)]
    bind: Option<IpAddr>,
    /// UDP port; 0 is any, 4791 the standard
    #[arg(long, default_value_t = 0)]
    udp_port: u16,
    /// Seconds to wait for other processes
    #[arg(long, default_value_t = 30)]
    wait: u64,
    /// Smallest message, in bytes
    #[arg(short = 'b', long, default_value = "8", value_parser = parse_size)]
    begin: u64,
    /// Largest message, in bytes
    #[arg(short = 'e', long, default_value = "1M", value_parser = parse_size)]
    end: u64,
    /// Factor from one size to the next
    #[arg(short = 'f', long, default_value_t = 4)]
    factor: u64,
    /// WRITEs to each peer on each queue pair
    #[arg(short = 'n', long, default_value_t = 64)]
    iters: u32,
    /// The same, before time is taken
    #[arg(short = 'w', long, default_value_t = 8)]
    warmup: u32,
    /// Blocks of the kernel
    #[arg(short = 'c', long, default_value_t = 1)]
    blocks: u32,
    /// Threads of a block, a multiple of 32
    #[arg(short = 't', long, default_value_t = 32)]
    threads: u32,
    /// Queue pairs to each peer
    #[arg(short = 'q', long, default_value_t = 1)]
    qps: u32,
}

impl Flags {
    fn check(&self) -> Result<()> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            ensure!(
                (least..=most).contains(&value),
                "{name} is {value}, expected {least} to {most}"
            );
            Ok(())
        };
        within("--begin", self.begin, 1, 1 << 30)?;
        within("--end", self.end, self.begin, 1 << 30)?;
        within("--factor", self.factor, 2, 1 << 20)?;
        within("--iters", self.iters.into(), 1, 1_000_000)?;
        within("--warmup", self.warmup.into(), 0, 1_000_000)?;
        within("--blocks", self.blocks.into(), 1, 1024)?;
        within("--threads", self.threads.into(), 32, 1024)?;
        ensure!(
            self.threads.is_multiple_of(32),
            "--threads is {}, expected a multiple of 32",
            self.threads
        );
        within("--qps", self.qps.into(), 1, 256)?;
        within("--wait", self.wait, 1, 86_400)
    }

    fn sizes(&self) -> Vec<u64> {
        let next = |size: &u64| size.checked_mul(self.factor).filter(|&size| size <= self.end);
        std::iter::successors(Some(self.begin), next).collect()
    }
}

/// One size.
struct Row {
    index: usize,
    size: u64,
    /// Of the slowest rank.
    time: Duration,
    /// WRITEs of one rank.
    writes: u64,
}

impl Row {
    fn seconds(&self) -> f64 {
        self.time.as_secs_f64()
    }

    fn gigabytes(&self) -> f64 {
        (self.writes * self.size) as f64 / self.seconds() / 1e9
    }

    fn micros(&self) -> f64 {
        self.seconds() * 1e6
    }

    fn mega_rate(&self) -> f64 {
        self.writes as f64 / self.seconds() / 1e6
    }

    fn line(&self) -> String {
        let Self { index, size, .. } = self;
        let (gb, us, rate) = (self.gigabytes(), self.micros(), self.mega_rate());
        format!("{index:>5} {size:>11} {gb:>9.3} {us:>11.1} {rate:>9.3}")
    }

    fn json(&self) -> Value {
        json!({
            "index": self.index,
            "size": self.size,
            "gb_per_s": self.gigabytes(),
            "us": self.micros(),
            "mpps": self.mega_rate(),
        })
    }
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        flags.check()?;
        if flags.two_proc { two_proc::run() } else { run(&flags) }
    })
}

fn run(flags: &Flags) -> Result<()> {
    let launch = rendezvous::Launch::from_env(&rendezvous::Flags {
        rank: flags.rank,
        world_size: flags.world_size,
        master_addr: flags.master_addr.clone(),
        master_port: flags.master_port,
        ..rendezvous::Flags::default()
    })?;
    ensure!(launch.world_size >= 2, "the world has one rank, expected two or more");
    let master = (launch.master_addr.as_str(), launch.master_port);
    let own = flags.bind.map_or_else(|| own_address(master), Ok)?;
    let bind = SocketAddr::new(own, flags.udp_port);
    let link = LinkConfig::Udp(UdpConfig { bind, max_mtu: None });
    let config = Config { link, ..Config::default() }.with_env()?.for_process(launch.rank);
    let context = Context::builder().soft_config(config).build()?;
    let mut session = Session::open_on(&flags.common, context, launch.rank == 0)?;
    let timeout = Duration::from_secs(flags.wait);
    let config = rendezvous::WorldConfig { timeout, ..rendezvous::WorldConfig::new(&launch) };
    let mut mesh = Mesh::new(&session, rendezvous::World::join(&config)?, flags.end, flags.qps)?;
    let rows = sweep(flags, &session, &mut mesh)?;
    let leaving = mesh.leave();
    if launch.rank == 0 {
        session.fact("ranks", launch.world_size);
        session.fact("rows", rows.iter().map(Row::json).collect::<Vec<_>>());
        let ranks = launch.world_size;
        session
            .passed(&format!("{} sizes, every byte at {ranks} ranks as it was sent", rows.len()))?;
    }
    leaving
}

fn sweep(flags: &Flags, session: &Session, mesh: &mut Mesh) -> Result<Vec<Row>> {
    let first = mesh.rank() == 0;
    if first {
        session.say("Index        Size      GB/s          µs      Mpps")?;
    }
    let dim = Dim::new(flags.blocks, flags.threads);
    let mut rows = Vec::new();
    for (index, size) in flags.sizes().into_iter().enumerate() {
        let told = || format!("rank {}, {size} bytes", mesh.rank());
        let who = told();
        mesh.prepare(session, index, size).with_context(|| who.clone())?;
        if flags.warmup > 0 {
            mesh.write(session, dim, size, flags.warmup).with_context(|| who.clone())?;
        }
        let own = mesh.write(session, dim, size, flags.iters).with_context(|| who.clone())?;
        let time = mesh.slowest(own).with_context(|| who.clone())?;
        mesh.verify(session, index, size).context(who)?;
        let writes = u64::from(flags.iters) * mesh.targets() as u64;
        let row = Row { index, size, time, writes };
        if first {
            session.say(&row.line())?;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The address of the interface that leads to the master.
fn own_address((host, port): (&str, u16)) -> Result<IpAddr> {
    let unknown = || format!("no address for --master-addr {host}");
    let mut all = (host, port).to_socket_addrs().with_context(unknown)?;
    let to = all.next().with_context(unknown)?;
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Nothing is sent: the system only chooses the address.
    let socket = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    Ok(socket.with_context(|| format!("no way to {to}"))?.ip())
}
