//! What examples of two processes share: a metadata server in the process that was started, and two
//! more of the same program that play a part each.
#![allow(dead_code, reason = "no example needs all of it")]

use anyhow::{Context as _, Result, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command};
use std::time::Duration;
use warpverbs::rendezvous::{Client, Limits, Server};

/// Bounds every wait of an example.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// A process that ends with the one that started it.
pub(crate) struct Started {
    child: Child,
    role: &'static str,
}

impl Started {
    /// This program with `--role` and `--server` in place of its own flags, and `more` with values.
    pub(crate) fn new(
        role: &'static str,
        server: SocketAddr,
        more: &[(&str, String)],
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--role", role, "--server", &server.to_string()]);
        for (flag, value) in more {
            command.args([flag, value.as_str()]);
        }
        let child = command.spawn().with_context(|| format!("cannot start the {role}"))?;
        Ok(Self { child, role })
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn end(mut self) -> Result<()> {
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

/// A store of PyTorch's protocol at a free port of this machine.
pub(crate) fn serve() -> Result<Server> {
    Ok(Server::bind((Ipv4Addr::LOCALHOST, 0).into(), Limits::default())?)
}

/// A connection to a store, which may begin to listen later.
pub(crate) fn connect(host: &str, port: u16) -> Result<Client> {
    Ok(Client::connect(host, port, WAIT, Limits::default())?)
}
