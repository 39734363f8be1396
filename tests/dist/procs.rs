//! All ranks of a world, started on this machine by one command.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the other ranks may go on when one has failed, and again when another has ended: they end
/// by themselves, and say why. One that is stopped does not.
const GRACE: Duration = Duration::from_secs(3);

/// Processes that do not outlive this one's interest in them.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended is not there any more.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

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
    let mut ranks = Ranks(Vec::new());
    for rank in 0..procs {
        let mut command = Command::new(&program);
        command.args(flags_of_a_rank());
        command.args(["--rank", &rank.to_string(), "--world-size", &procs.to_string()]);
        command.args(["--master-addr", "127.0.0.1", "--master-port", &port.to_string()]);
        // This process holds the other end of the pipe, and nobody else does: see `end_with_launcher`.
        command.arg("--until-stdin-ends").stdin(Stdio::piped());
        ranks.0.push(command.spawn().with_context(|| format!("rank {rank} does not start"))?);
    }
    let (mut running, mut failed, mut last) = (procs, None, Instant::now());
    let mut ended = vec![false; ranks.0.len()];
    while running > 0 {
        for (rank, child) in ranks.0.iter_mut().enumerate() {
            if let (false, Some(status)) = (ended[rank], child.try_wait()?) {
                ended[rank] = true;
                running -= 1;
                last = Instant::now();
                if !status.success() {
                    failed.get_or_insert((rank, status));
                }
            }
        }
        if failed.is_some() && last.elapsed() > GRACE {
            break;
        }
        // Leaves the processor to the ranks.
        std::thread::sleep(Duration::from_millis(5));
    }
    match failed {
        Some((rank, status)) => bail!("rank {rank} ended with {status}"),
        None => Ok(()),
    }
}
