//! Examples of two processes: a store in the process that was started, and two more of the same
//! program that play a part each.

use super::processes::Processes;
use crate::common::DEADLINE;
use anyhow::{Context as _, Result};
use clap::Args;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use warpverbs::rendezvous::{Client, Limits, Server};

/// The part that a process plays; given by the process that starts both.
#[derive(Args)]
pub(crate) struct Part {
    #[arg(long, requires = "server", hide = true)]
    role: Option<String>,
    #[arg(long, hide = true)]
    server: Option<SocketAddr>,
}

/// A part by its name, and the function that plays it with a connection to the store.
pub(crate) type Role<F> = (&'static str, fn(&F, Client) -> Result<()>);

impl Part {
    /// Says something, in the process that starts the others.
    pub(crate) fn say(&self, line: &str) {
        if self.role.is_none() {
            println!("{line}");
        }
    }

    /// Plays the part that this process was given, or starts a process for each of `roles`, with
    /// the flags of this one and with `more`, and waits for both.
    pub(crate) fn play<F>(&self, flags: &F, roles: [Role<F>; 2], more: &[String]) -> Result<()> {
        if let (Some(name), Some(server)) = (&self.role, self.server) {
            let role = roles.iter().find(|(role, _)| role == name);
            let (_, role) = role.with_context(|| format!("there is no part {name}"))?;
            return role(flags, connect(&server.ip().to_string(), server.port())?);
        }
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), Limits::default())?;
        let mut parts = Processes::default();
        for (role, _) in roles {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(std::env::args_os().skip(1)).args(more);
            command.args(["--role", role, "--server", &server.local_addr().to_string()]);
            parts.start(format!("the {role}"), &mut command)?;
        }
        parts.end()
    }
}

/// A connection to a store, which may begin to listen later.
pub(crate) fn connect(host: &str, port: u16) -> Result<Client> {
    Ok(Client::connect(host, port, DEADLINE, Limits::default())?)
}
