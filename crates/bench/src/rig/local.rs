//! Both ends on this machine: the server is a second process of this program.

use super::child::Running;
use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Begins the line in which a server says where it listens.
pub(crate) const LISTENING: &str = "waiting for a client at ";
/// How long the server may go on when the client has ended.
const GRACE: Duration = Duration::from_secs(10);

/// A server that does not outlive this value.
pub(crate) struct Server {
    program: Running,
    pub(crate) addr: SocketAddr,
}

impl Server {
    /// Starts `warpverbs COMMAND server FLAGS`.
    pub(crate) fn start(words: &[&str], flags: &[&str]) -> Result<Self> {
        let program = std::env::current_exe().context("this program's path")?;
        let mut command = Command::new(program);
        command.args(words).args(["server", "--bind", "127.0.0.1", "--port", "0"]).args(flags);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("the server's process")?;
        let stdout = child.stdout.take();
        let program = Running::from(("the server".to_owned(), child));
        let mut server = Self { program, addr: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        // Ends with the server: it prints this line first, or nothing.
        BufReader::new(stdout.context("its output")?).read_line(&mut line)?;
        let addr = line.strip_prefix(LISTENING).context("the server did not start")?;
        server.addr = addr.trim().parse().context("its address")?;
        Ok(server)
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.program.wait(Instant::now() + GRACE)?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}
