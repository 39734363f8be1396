//! `perf agent`: lists of blocks moved by agents, between two processes.

mod client;
mod exchange;
mod memory;
mod messages;
mod plan;
mod plot;
mod row;
mod server;

use super::busy::Watch;
use super::output::{Chosen, Measured, Setting};
use crate::local::LocalServer;
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use client::Client;
use memory::Side;
use plan::{MeasureArgs, SideArgs};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

/// Which end this process is.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum AgentCommand {
    /// Wait for a client, and register the memory it asks for
    Server(ServerArgs),
    /// Measure against a server
    Client(ClientArgs),
    /// Measure between this process and a second one, which it starts
    Local(LocalArgs),
}

const PORT: u16 = 18519;
/// Any one step is complete by then.
const LIMIT: Duration = Duration::from_secs(60);

/// Options of a server: the client chooses everything else.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Address to listen at; the software NIC uses it as well
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port; 0 is any
    #[arg(short = 'p', long, default_value_t = PORT)]
    port: u16,
    /// Seconds to wait for a client that does not come
    #[arg(long, default_value_t = 300)]
    wait: u64,
    #[command(flatten)]
    side: SideArgs,
}

/// Options of a client.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// Host name or address of the server
    host: String,
    /// TCP port of the server
    #[arg(short = 'p', long, default_value_t = PORT)]
    port: u16,
    #[command(flatten)]
    side: SideArgs,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// Options of both ends on one machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    side: SideArgs,
    /// The GPU of the second process [default: as --gpu]
    #[arg(long)]
    peer_gpu: Option<String>,
    #[command(flatten)]
    measure: MeasureArgs,
}

pub(crate) fn run(command: &AgentCommand) -> Result<()> {
    match command {
        AgentCommand::Server(args) => server::run(args),
        AgentCommand::Client(args) => {
            let found = (args.host.as_str(), args.port).to_socket_addrs()?.next();
            let address = found.with_context(|| format!("no address of {}", args.host))?;
            measure(&args.side, &args.measure, address)
        }
        AgentCommand::Local(args) => {
            args.measure.plan()?;
            let SideArgs { gpu, nic, link } = &args.side;
            let gpu = args.peer_gpu.as_ref().unwrap_or(gpu);
            let mut flags = vec!["--gpu", gpu, "--nic", nic];
            flags.extend(link.iter().flat_map(|link| ["--link", link]));
            let server = LocalServer::start(&["perf", "agent"], &flags)?;
            measure(&args.side, &args.measure, server.addr)?;
            server.finish()
        }
    }
}

fn measure(side: &SideArgs, args: &MeasureArgs, address: SocketAddr) -> Result<()> {
    let plan = args.plan()?;
    let bind = match (address.ip().is_loopback(), address) {
        (true, _) => address.ip(),
        (false, SocketAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (false, SocketAddr::V6(_)) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let side = Side::open(side, false, bind)?;
    let mut client = Client::connect(&side, args, SocketAddr::new(bind, 0), address)?;
    let (watch, mut rows, mut notes) = (Watch::start(), Vec::new(), Vec::new());
    let end = client.measure(&plan, &mut rows, &mut notes).and_then(|()| client.finish());
    let setting = Setting {
        gpu: Some(Chosen::new(side.gpu.info().name.clone(), &side.why)),
        nic: match &side.nics[..] {
            [nic, others @ ..] => {
                let others = others.iter().map(|nic| format!(", {}", nic.info().name));
                Chosen::new(others.fold(nic.info().name.clone(), |all, one| all + &one), nic.why())
            }
            [] => Chosen::new("none".to_owned(), "without --nic the network is no path"),
        },
    };
    let drawn = match &args.plot {
        Some(file) if !rows.is_empty() => plot::write(&rows, file),
        _ => Ok(()),
    };
    let measured = Measured::new("perf agent", setting, rows).noting(notes);
    measured.watched(&watch).print_up_to(end, args.json).and(drawn)
}
