//! Both ranks of a world of two, started by one command.

use anyhow::{Context as _, Result, bail};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long the other rank may go on when one has failed: it ends by itself, and says why.
const GRACE: Duration = Duration::from_secs(10);

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

pub(crate) fn run() -> Result<()> {
    // Given back at once: rank 0 takes it.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let program = std::env::current_exe().context("this program's path")?;
    let flags: Vec<_> = std::env::args_os().skip(1).filter(|flag| flag != "--two-proc").collect();
    let mut ranks = Ranks(Vec::new());
    for rank in ["0", "1"] {
        let mut command = Command::new(&program);
        command.args(&flags).args(["--rank", rank, "--world-size", "2"]);
        command.args(["--master-addr", "127.0.0.1", "--master-port", &port.to_string()]);
        ranks.0.push(command.spawn().with_context(|| format!("rank {rank} does not start"))?);
    }
    let (mut ended, mut failed) = ([false; 2], None);
    while ended != [true; 2] {
        for (rank, child) in ranks.0.iter_mut().enumerate() {
            if let (false, Some(status)) = (ended[rank], child.try_wait()?) {
                ended[rank] = true;
                if !status.success() {
                    failed.get_or_insert((rank, status, Instant::now()));
                }
            }
        }
        if failed.is_some_and(|(.., since)| since.elapsed() > GRACE) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    match failed {
        Some((rank, status, _)) => bail!("rank {rank} ended with {status}"),
        None => Ok(()),
    }
}
