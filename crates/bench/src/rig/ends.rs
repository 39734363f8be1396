//! Which of two ends a process is, and where they meet.

use super::local::{self, LISTENING};
use super::print;
use super::talk::{Talk, Words};
use anyhow::Result;
use clap::{Args, Subcommand};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use warpverbs_meet::Listener;

/// A family with two ends, and the flags that are its own.
pub(crate) trait Family {
    /// TCP port where the ends meet, unless another is given.
    const PORT: &'static str;
    /// Flags of a server: the client chooses everything else.
    type Server: Args;
    /// Flags of a client.
    type Client: Args;
    /// Flags of both ends on one machine.
    type Local: Args;
}

/// Which end this process is.
#[derive(Subcommand)]
pub(crate) enum Role<F: Family> {
    /// Wait for a client, and do what it asks for
    Server(Server<F>),
    /// Run against a server
    Client(Client<F>),
    /// Run against a second process of this program, which it starts
    Local(F::Local),
}

/// Options of a server.
#[derive(Args)]
pub(crate) struct Server<F: Family> {
    /// Address to listen at; packets use the interface of the client's connection
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port where client and server meet; 0 is any
    #[arg(short = 'p', long, default_value = F::PORT)]
    port: u16,
    /// Seconds to wait for a client that does not come
    #[arg(long, default_value_t = 300)]
    wait: u64,
    #[command(flatten)]
    pub(crate) own: F::Server,
}

/// Options of a client.
#[derive(Args)]
pub(crate) struct Client<F: Family> {
    /// Host name or address of the server
    host: String,
    /// TCP port where client and server meet
    #[arg(short = 'p', long, default_value = F::PORT)]
    port: u16,
    /// Seconds to wait for a server that does not answer, 1 at least
    #[arg(long, default_value_t = 5)]
    wait: u64,
    #[command(flatten)]
    pub(crate) own: F::Client,
}

/// The port of an end's NIC.
#[derive(Args)]
pub(crate) struct NicPort {
    /// UDP port of a software NIC; 0 is any, 4791 what RDMA devices speak to
    #[arg(long, default_value_t = 0)]
    pub(crate) udp_port: u16,
}

/// Options of an end whose NIC may have a port of its own.
#[derive(Args)]
pub(crate) struct AtPort<T: Args> {
    #[command(flatten)]
    pub(crate) at: NicPort,
    #[command(flatten)]
    pub(crate) own: T,
}

impl<F: Family> Server<F> {
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.bind, self.port)
    }

    pub(crate) fn wait(&self) -> Duration {
        Duration::from_secs(self.wait)
    }

    /// Takes one client, and does what it asks for.
    pub(crate) fn serve<T: Words>(
        &self,
        follow: impl FnOnce(&mut Talk<T>) -> Result<()>,
    ) -> Result<()> {
        let listener = Listener::bind(self.address())?;
        announce(listener.addr())?;
        listener.accept(self.wait())?.failing(follow)
    }
}

/// Says where a server listens: [`beside`] reads it.
pub(crate) fn announce(at: SocketAddr) -> Result<()> {
    print::line(format_args!("{LISTENING}{at}"))
}

impl<F: Family> Client<F> {
    pub(crate) fn place(&self) -> Place {
        let (host, port) = (self.host.clone(), self.port);
        // All of connecting ends by then, so no time is no attempt.
        Place { host, port, wait: Duration::from_secs(self.wait.max(1)) }
    }
}

/// Where a server is met, and how long it is looked for.
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) wait: Duration,
}

impl Place {
    pub(crate) fn connect<T: Words>(&self) -> Result<Talk<T>> {
        Ok(Talk::connect(&self.host, self.port, self.wait)?)
    }
}

/// Starts `warpverbs WORDS server FLAGS` as a second process, and runs `work` against it.
pub(crate) fn beside(
    words: &[&str],
    flags: &[&str],
    work: impl FnOnce(&Place) -> Result<()>,
) -> Result<()> {
    let server = local::Server::start(words, flags)?;
    let (host, port) = (server.addr.ip().to_string(), server.addr.port());
    work(&Place { host, port, wait: Duration::from_secs(5) })?;
    server.finish()
}
