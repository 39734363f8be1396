//! Which of two ends a process is, and where they meet.

use super::talk::{Talk, Words};
use crate::child::Running;
use crate::print;
use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs_meet::Listener;

/// Begins the line in which a server says where it listens.
const LISTENING: &str = "waiting for a client at ";
/// How long the server of [`beside`] may go on when the client has ended.
const GRACE: Duration = Duration::from_secs(10);

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

/// Options of an end whose NIC may have a port of its own.
#[derive(Args)]
pub(crate) struct AtPort<T: Args> {
    /// UDP port of a software NIC; 0 is any, 4791 what RDMA devices speak to
    #[arg(long, default_value_t = 0)]
    pub(crate) udp_port: u16,
    #[command(flatten)]
    pub(crate) own: T,
}

impl<F: Family> Server<F> {
    /// Takes one client, and does what it asks for.
    pub(crate) fn serve<T: Words>(
        &self,
        follow: impl FnOnce(&mut Talk<T>) -> Result<()>,
    ) -> Result<()> {
        let listener = Listener::bind(SocketAddr::new(self.bind, self.port))?;
        print::line(format_args!("{LISTENING}{}", listener.addr()))?;
        listener.accept(Duration::from_secs(self.wait))?.failing(follow)
    }
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
    host: String,
    port: u16,
    wait: Duration,
}

impl Place {
    pub(crate) fn connect<T: Words>(&self) -> Result<Talk<T>> {
        Ok(Talk::connect(&self.host, self.port, self.wait)?)
    }
}

/// Starts `warpverbs WORDS server FLAGS` as a second process, which does not outlive the call, and runs
/// `work` against it.
pub(crate) fn beside(
    words: &[&str],
    flags: &[&str],
    work: impl FnOnce(&Place) -> Result<()>,
) -> Result<()> {
    let mut command = Command::new(std::env::current_exe().context("this program's path")?);
    command.args(words).args(["server", "--bind", "127.0.0.1", "--port", "0"]).args(flags);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the server's process")?;
    let stdout = child.stdout.take().context("the server's output")?;
    let mut server = Running::from(("the server".to_owned(), child));
    let mut line = String::new();
    // Ends with the server: it prints this line first, or nothing.
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.strip_prefix(LISTENING).context("the server did not start")?;
    let address: SocketAddr = address.trim().parse().context("the server's address")?;
    let (host, port) = (address.ip().to_string(), address.port());
    work(&Place { host, port, wait: Duration::from_secs(5) })?;
    let status = server.wait(Instant::now() + GRACE)?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(())
}
