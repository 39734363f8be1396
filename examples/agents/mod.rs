//! Shared by examples of two processes: a metadata server in the process that was started, and two
//! more of the same program that play a part each.
#![allow(dead_code, reason = "no example needs all of it")]

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use sha2::{Digest as _, Sha256};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use warpverbs::rendezvous::{Client, Limits, Server};

/// Bounds every wait of an example.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// The part that a process plays; given by the process that starts both.
#[derive(Args)]
pub(crate) struct Part {
    #[arg(long, requires = "server", hide = true)]
    role: Option<String>,
    #[arg(long, hide = true)]
    server: Option<SocketAddr>,
}

impl Part {
    /// Says something, in the process that starts the others.
    pub(crate) fn say(&self, line: &str) {
        if self.role.is_none() {
            println!("{line}");
        }
    }
}

/// A part by its name, and the function that plays it with a connection to the metadata server.
pub(crate) type Role<F> = (&'static str, fn(&F, Client) -> Result<()>);

/// Plays the part that this process was given, or starts a process for each of `roles`, with the flags
/// of this one and with `more`, and waits for both, the second one first.
pub(crate) fn play<F>(flags: &F, part: &Part, roles: [Role<F>; 2], more: &[String]) -> Result<()> {
    if let (Some(name), Some(server)) = (&part.role, part.server) {
        let role = roles.iter().find(|(role, _)| role == name);
        let (_, role) = role.with_context(|| format!("there is no part {name}"))?;
        return role(flags, connect(&server.ip().to_string(), server.port())?);
    }
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), Limits::default())?;
    let start = |role| Started::new(role, server.local_addr(), more);
    let [first, second] = roles.map(|(role, _)| start(role));
    let first = first?;
    second?.end()?;
    first.end()
}

/// A process that ends with the one that started it.
struct Started {
    child: Child,
    role: &'static str,
}

impl Started {
    fn new(role: &'static str, server: SocketAddr, more: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).args(more);
        command.args(["--role", role, "--server", &server.to_string()]);
        let child = command.spawn().with_context(|| format!("cannot start the {role}"))?;
        Ok(Self { child, role })
    }

    /// Waits for its end, which must be a good one.
    fn end(mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} ended with {status}", self.role);
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to a store, which may begin to listen later.
pub(crate) fn connect(host: &str, port: u16) -> Result<Client> {
    Ok(Client::connect(host, port, WAIT, Limits::default())?)
}

/// SHA-256 of all that one process sent or another received.
#[derive(Clone, Default)]
pub(crate) struct Digest(Sha256);

impl Digest {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn text(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Publishes it as that of `what`.
    pub(crate) fn tell(self, store: &mut Client, what: &str) -> Result<()> {
        Ok(store.set(&format!("digest of {what}"), self.text().as_bytes())?)
    }

    /// Compares it with the other process's, and prints it as `who`.
    pub(crate) fn compare(self, store: &mut Client, who: &str, what: &str) -> Result<()> {
        let (ours, theirs) =
            (self.text(), String::from_utf8(store.get(&format!("digest of {what}"))?)?);
        println!("[{who}] SHA-256 {ours}");
        ensure!(ours == theirs, "{what}: the digest is {ours}, that of the other process {theirs}");
        Ok(())
    }
}

/// Numbers without quality, the same for the same seed.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut word = seed;
    move || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word ^ word >> 29
    }
}

/// `len` bytes of [`numbers`].
pub(crate) fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut next = numbers(seed);
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len as usize).collect()
}

/// The numbers below `count` in random order.
pub(crate) fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let (mut next, mut order) = (numbers(!seed), (0..count).collect::<Vec<u32>>());
    for i in (1..count as usize).rev() {
        order.swap(i, ((next() >> 16) % (i as u64 + 1)) as usize);
    }
    order
}

/// A seed that was not asked for.
pub(crate) fn any() -> Result<u64> {
    Ok(std::time::UNIX_EPOCH.elapsed()?.as_nanos() as u64)
}

/// Has messages sent that differ from each other; their digest, and how long sending took.
pub(crate) fn send(
    messages: u64,
    len: u64,
    mut send: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<(Digest, Duration)> {
    let (mut digest, mut took) = (Digest::default(), Duration::ZERO);
    for number in 0..messages {
        let bytes = bytes(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), len);
        digest.add(&bytes);
        let start = Instant::now();
        send(number, &bytes)?;
        took += start.elapsed();
    }
    Ok((digest, took))
}

/// The one in the middle, and no less than a nanosecond.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2].max(Duration::from_nanos(1))
}
