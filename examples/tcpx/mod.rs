//! What the examples of device-memory TCP share: who listens, who connects, and where.
#![allow(dead_code, reason = "no example needs all of it")]

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::devmem::transport::{Config, Connection, Endpoint, QUEUES_ENV, Queues};
use warpverbs::devmem::unpack::{UnpackConfig, Way};
use warpverbs::gpu::Gpu;

/// Which end this process is.
#[derive(Subcommand, Clone)]
pub(crate) enum Side {
    /// Wait for a client
    Server {
        /// Address to listen at
        #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
        bind: IpAddr,
    },
    /// Connect to a server
    Client {
        /// Host name or address of the server
        host: String,
    },
}

/// Bytes of device memory that are bound to queues.
const BOUND: u64 = 64 << 20;

/// Flags of both ends.
#[derive(Args, Clone)]
pub(crate) struct TcpFlags {
    /// TCP port of the server; 0 takes any free one
    #[arg(short = 'p', long, default_value_t = 18519, global = true)]
    port: u16,
    /// Sockets of the connection
    #[arg(long, default_value_t = 3, global = true)]
    sockets: u16,
    /// Receive queues to be bound to memory of the device, such as eth0:7; needs root
    #[arg(long, env = QUEUES_ENV, global = true)]
    pub(crate) queues: Option<Queues>,
    /// Seconds to wait for the other end
    #[arg(long, default_value_t = 60, global = true)]
    wait: u64,
}

impl TcpFlags {
    /// Connects the ends; this one receives into memory of `gpu` if queues are named for it.
    pub(crate) fn connect(&self, side: &Side, gpu: &Arc<dyn Gpu>, way: Way) -> Result<Connection> {
        let config = Config::default().sockets(self.sockets);
        let unpack = UnpackConfig { way, ..UnpackConfig::default() };
        let endpoint = Endpoint::choose(config, self.queues.as_ref(), BOUND, gpu, unpack)?;
        let wait = Duration::from_secs(self.wait);
        match side {
            Side::Server { bind } => {
                let mut listener = endpoint.listen(SocketAddr::new(*bind, self.port))?;
                println!("waiting for a client at {}", listener.address());
                Ok(listener.accept(&endpoint, wait)?)
            }
            Side::Client { host } => {
                let mut found = (host.as_str(), self.port).to_socket_addrs()?;
                let address = found.next().with_context(|| format!("no address of {host}"))?;
                Ok(endpoint.connect(address, wait)?)
            }
        }
    }
}
