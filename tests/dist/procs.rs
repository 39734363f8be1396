//! All ranks of a world, started on this machine by one command.

use crate::common::Processes;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

/// The flags of this process without the ones that made it start others.
fn flags_of_a_rank() -> Vec<OsString> {
    let mut value_follows = false;
    let mut flags: Vec<_> = std::env::args_os().skip(1).collect();
    flags.retain(|flag| {
        let own = value_follows || flag == "--two-proc" || flag == "--procs";
        value_follows = flag == "--procs";
        !own && !flag.to_string_lossy().starts_with("--procs=")
    });
    flags
}

/// Ends this process when its standard input does: the launcher has ended, in whatever way.
pub(super) fn end_with_launcher() {
    std::thread::spawn(|| {
        // Nothing is ever written; an error is an end as well.
        let _ = std::io::stdin().read(&mut [0]);
        eprintln!("failed: the process that started this rank has ended");
        std::process::exit(1);
    });
}

pub(super) fn run(procs: u32) -> Result<()> {
    // Given back at once: rank 0 takes it.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let program = std::env::current_exe().context("this program's path")?;
    let mut ranks = Processes::default();
    for rank in 0..procs {
        let mut command = Command::new(&program);
        command.args(flags_of_a_rank());
        command.args(["--rank", &rank.to_string(), "--world-size", &procs.to_string()]);
        command.args(["--master-addr", "127.0.0.1", "--master-port", &port.to_string()]);
        // This process holds the other end of the pipe, and nobody else does: see `end_with_launcher`.
        command.arg("--until-stdin-ends").stdin(Stdio::piped());
        ranks.start(format!("rank {rank}"), &mut command)?;
    }
    ranks.end()
}
