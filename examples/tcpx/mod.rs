//! What the examples of device-memory TCP share: who listens, who connects, and where.
#![allow(dead_code, reason = "no example needs all of it")]

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;
use warpverbs::devmem::transport::{Config, Connection, Endpoint};

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

/// Flags of both ends.
#[derive(Args, Clone)]
pub(crate) struct TcpFlags {
    /// TCP port of the server; 0 takes any free one
    #[arg(short = 'p', long, default_value_t = 18519, global = true)]
    port: u16,
    /// Sockets of the connection
    #[arg(long, default_value_t = 3, global = true)]
    sockets: u16,
    /// Seconds to wait for the other end
    #[arg(long, default_value_t = 60, global = true)]
    wait: u64,
}

impl TcpFlags {
    pub(crate) fn connect(&self, side: &Side) -> Result<Connection> {
        let endpoint = Endpoint::new(Config::default().sockets(self.sockets))?;
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
