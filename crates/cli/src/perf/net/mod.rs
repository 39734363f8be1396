//! `perf write|read|send|atomic`: two processes, on one machine or two, and RoCEv2 between them.

mod client;
mod feed;
mod messages;
mod pair;
mod plot;
mod posted;
mod request;
mod row;
mod server;
mod side;
mod timed;
mod watch;

use super::output::Measured;
use super::plan::Op;
use crate::local::LocalServer;
use anyhow::Result;
use clap::{Args, Subcommand};
use client::Client;
use request::{MeasureArgs, Request};
use server::Serve;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Which end this process is.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum NetCommand {
    /// Wait for a client, and serve its measurement
    Server(ServerArgs),
    /// Measure against a server
    Client(ClientArgs),
    /// Measure between this process and a second one, which it starts
    Local(LocalArgs),
}

/// The TCP port of perftest.
const PORT: u16 = 18515;

/// Options of a server: the client chooses everything else.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Address to listen at; packets use the interface of the client's connection
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port where client and server meet; 0 is any
    #[arg(short = 'p', long, default_value_t = PORT)]
    port: u16,
    /// UDP port of the NIC; 0 is any, 4791 the standard
    #[arg(long, default_value_t = 0)]
    udp_port: u16,
    /// Seconds to wait for a client that does not come
    #[arg(long, default_value_t = 300)]
    wait: u64,
}

/// Options of a client.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// Host name or address of the server
    host: String,
    /// TCP port where client and server meet
    #[arg(short = 'p', long, default_value_t = PORT)]
    port: u16,
    /// UDP port of the NIC; 0 is any, 4791 the standard
    #[arg(long, default_value_t = 0)]
    udp_port: u16,
    /// Seconds to wait for a server that does not answer
    #[arg(long, default_value_t = 5)]
    wait: u64,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// Options of both ends on one machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    measure: MeasureArgs,
}

pub(crate) fn run(op: Op, command: &NetCommand) -> Result<()> {
    match command {
        NetCommand::Server(args) => server::run(&Serve {
            op,
            listen: SocketAddr::new(args.bind, args.port),
            udp_port: args.udp_port,
            wait: Duration::from_secs(args.wait),
        }),
        NetCommand::Client(args) => {
            let wait = Duration::from_secs(args.wait);
            let request = args.measure.request(op, args.udp_port, wait)?;
            measure(&args.measure, &request, &args.host, args.port)
        }
        NetCommand::Local(args) => {
            let request = args.measure.request(op, 0, Duration::from_secs(5))?;
            let server = LocalServer::start(&["perf", op.word()], &[])?;
            let (host, port) = (server.addr.ip().to_string(), server.addr.port());
            measure(&args.measure, &request, &host, port)?;
            server.finish()
        }
    }
}

fn measure(args: &MeasureArgs, request: &Request, host: &str, port: u16) -> Result<()> {
    let mut client = Client::connect(request, host, port)?;
    let mut rows = Vec::new();
    let end = client.measure(request, &mut rows);
    let (command, setting) = (command(request.setup.op), client.setting());
    let drawn = match &args.plot {
        Some(file) if !rows.is_empty() => plot::write(&rows, &format!("warpverbs {command}"), file),
        _ => Ok(()),
    };
    Measured::new(command, setting, rows).print_up_to(end, args.json).and(drawn)
}

fn command(op: Op) -> &'static str {
    match op {
        Op::Write => "perf write",
        Op::Read => "perf read",
        Op::Send => "perf send",
        Op::Atomic => "perf atomic",
    }
}
