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
use anyhow::Result;
use clap::{Args, Subcommand};
use client::Client;
use memory::Side;
use plan::{MeasureArgs, SideArgs};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use warpverbs_control::Connection;

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
    /// Address to listen at; packets use the interface of the client's connection
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port where client and server meet; 0 is any
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
    /// TCP port where client and server meet
    #[arg(short = 'p', long, default_value_t = PORT)]
    port: u16,
    /// Seconds to wait for a server that does not answer
    #[arg(long, default_value_t = 5)]
    wait: u64,
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
        AgentCommand::Client(args) => measure(args),
        AgentCommand::Local(args) => {
            args.measure.plan()?;
            let SideArgs { gpu, nic, link, token } = &args.side;
            let gpu = args.peer_gpu.as_ref().unwrap_or(gpu);
            let mut flags = vec!["--gpu", gpu, "--nic", nic, "--token", token];
            flags.extend(link.iter().flat_map(|link| ["--link", link]));
            let server = LocalServer::start(&["perf", "agent"], &flags)?;
            measure(&ClientArgs {
                host: server.addr.ip().to_string(),
                port: server.addr.port(),
                wait: 5,
                side: args.side.clone(),
                measure: args.measure.clone(),
            })?;
            server.finish()
        }
    }
}

fn measure(client: &ClientArgs) -> Result<()> {
    let args = &client.measure;
    let plan = args.plan()?;
    let side = Side::open(&client.side, false)?;
    let control = Connection::connect(&client.host, client.port, Duration::from_secs(client.wait))?;
    let mut client = Client::connect(&side, args, control)?;
    let (watch, mut rows, mut notes) = (Watch::start(), Vec::new(), Vec::new());
    let end = client.measure(&plan, &mut rows, &mut notes);
    let end = client.finish(end);
    let setting = Setting {
        gpu: Some(Chosen::new(side.gpu.info().name.clone(), &side.why)),
        nic: match side.nics() {
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
