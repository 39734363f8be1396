//! Two processes connect over TCP and agree on sockets, chunks and how each end receives. No payload.
//!
//! ```text
//! tcpx_connection server
//! tcpx_connection client HOST
//! ```

mod common;

use anyhow::Result;
use clap::Parser;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::devmem::unpack::UnpackConfig;
use warpverbs::devmem::{BoundQueues, QUEUES_ENV, QueueChoice};
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::tcp::{Config, Domain, Receive};

/// A handshake of device-memory TCP
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Which end this process is
    #[arg(value_parser = ["server", "client"])]
    side: String,
    /// Host name or address of the server, for its client
    #[arg(required_if_eq("side", "client"))]
    host: Option<String>,
    /// Address that the server listens at
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port of the server; 0 takes any free one
    #[arg(short = 'p', long, default_value_t = 18519)]
    port: u16,
    /// Sockets of the connection
    #[arg(long, default_value_t = 3)]
    sockets: u16,
    /// Receive queues to be bound to memory of the device, such as eth0:7, or auto; needs root
    #[arg(long, env = QUEUES_ENV)]
    queues: Option<QueueChoice>,
    /// Seconds to wait for the other end
    #[arg(long, default_value_t = 60)]
    wait: u64,
    /// Whose memory is bound to queues: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    gpu: String,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    let gpu = gpu::open(flags.gpu.parse::<GpuChoice>()?)?;
    let queues = flags.queues.as_ref();
    let receive = Receive::choose(queues, BoundQueues::BYTES, &gpu, UnpackConfig::default());
    let domain = Domain::receiving(Config::default().sockets(flags.sockets), receive)?;
    let wait = Duration::from_secs(flags.wait);
    let link = match flags.host.as_ref().filter(|_| flags.side == "client") {
        Some(host) => domain.reach(host, flags.port, wait)?,
        None => {
            let mut listener = domain.listen(SocketAddr::new(flags.bind, flags.port))?;
            println!("waiting for a client at {}", listener.address());
            listener.accept(&domain, wait)?
        }
    };
    println!("connected to {}: {}", link.peer()?, link.explain());
    link.close(common::DEADLINE)?;
    println!("passed: both ends said goodbye");
    Ok(())
}
