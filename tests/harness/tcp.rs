//! Flags of the examples of device-memory TCP: which end listens or connects, and where.

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs::devmem::unpack::{UnpackConfig, Way};
use warpverbs::devmem::{BoundQueues, QUEUES_ENV, QueueChoice};
use warpverbs::gpu::Gpu;
use warpverbs::tcp::{Config, Domain, Link, Receive, TcpError};

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

/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);

/// Flags of both ends.
#[derive(Args, Clone)]
pub(crate) struct TcpFlags {
    /// TCP port of the server; 0 takes any free one
    #[arg(short = 'p', long, default_value_t = 18519, global = true)]
    port: u16,
    /// Sockets of the connection
    #[arg(long, default_value_t = 3, global = true)]
    sockets: u16,
    /// Receive queues to be bound to memory of the device, such as eth0:7, or auto; needs root
    #[arg(long, env = QUEUES_ENV, global = true)]
    pub(crate) queues: Option<QueueChoice>,
    /// Seconds to wait for the other end
    #[arg(long, default_value_t = 60, global = true)]
    wait: u64,
}

impl TcpFlags {
    /// Connects the ends; this one receives into memory of `gpu` if queues are named for it.
    pub(crate) fn connect(&self, side: &Side, gpu: &Arc<dyn Gpu>, way: Way) -> Result<Link> {
        let config = Config::default().sockets(self.sockets);
        let unpack = UnpackConfig { way, ..UnpackConfig::default() };
        let receive = Receive::choose(self.queues.as_ref(), BoundQueues::BYTES, gpu, unpack);
        let domain = Domain::receiving(config, receive)?;
        let wait = Duration::from_secs(self.wait);
        match side {
            Side::Server { bind } => {
                let mut listener = domain.listen(SocketAddr::new(*bind, self.port))?;
                println!("waiting for a client at {}", listener.address());
                Ok(listener.accept(&domain, wait)?)
            }
            Side::Client { host } => {
                let mut found = (host.as_str(), self.port).to_socket_addrs()?;
                let address = found.next().with_context(|| format!("no address of {host}"))?;
                let deadline = Instant::now() + wait;
                loop {
                    let left = deadline.saturating_duration_since(Instant::now());
                    match domain.connect(address, left) {
                        // Nobody listens yet.
                        Err(TcpError::Socket { error, .. })
                            if error.kind == ErrorKind::ConnectionRefused && left > AGAIN =>
                        {
                            std::thread::sleep(AGAIN);
                        }
                        outcome => return Ok(outcome?),
                    }
                }
            }
        }
    }
}

/// The last bytes of what is sent.
pub(crate) const TAIL: usize = 64;
/// Each of them.
pub(crate) const MARK: u8 = 0xab;

/// The payload of a transfer.
pub(crate) fn expected(len: usize) -> Vec<u8> {
    let mut bytes = crate::common::sample(len);
    bytes[len - TAIL..].fill(MARK);
    bytes
}
