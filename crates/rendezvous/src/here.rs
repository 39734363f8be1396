//! All ranks of a job on this machine, started by one process without a launcher.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{BindError, EnvError, Flags, Limits, RankInfo, Server};

/// Set in the processes that were started here.
const STARTED: &str = "WARPVERBS_STARTED";

/// Most ranks of one machine.
const MOST: u32 = 64;

/// How long the others may go on when one has failed, and again when another has ended: they end by
/// themselves, and say why. One that is stopped, or waits for what will not come, does not.
const GRACE: Duration = Duration::from_secs(3);

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(5);

/// Why the ranks of a job on this machine did not all end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum StartError {
    /// Too few or too many.
    #[error("{ranks} ranks of this machine were asked for, expected 1 to {MOST}")]
    Count { ranks: u32 },
    /// There is no store for them.
    #[error("a store for the ranks of this machine")]
    Store(#[from] BindError),
    /// A process does not start.
    #[error("rank {rank} does not start")]
    Spawn { rank: u32, source: io::Error },
    /// A process cannot be waited for.
    #[error("rank {rank} cannot be waited for")]
    Wait { rank: u32, source: io::Error },
    /// A process that was started so has an environment that says something else.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A process failed; it has said why on its standard error.
    #[error("rank {rank} ended with {status}")]
    Failed { rank: u32, status: ExitStatus },
}

/// Processes that do not outlive this value.
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended is not there any more.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl RankInfo {
    /// Starts this program `ranks` times more, with the arguments of this process, as all ranks of a
    /// job on this machine; serves the store at which they meet, and waits for all. When one fails,
    /// the others have a few seconds to end by themselves. Gives nothing when all have ended well.
    ///
    /// In a process that was started so it gives at once which rank this is. Such a process ends when
    /// the one that started it does, however that ends, which it knows from its standard input.
    ///
    /// ```no_run
    /// use warpverbs_rendezvous::{RankInfo, World, WorldConfig};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let Some(launch) = RankInfo::here(3)? else { return Ok(()) };
    /// let world = World::join(&WorldConfig::new(&launch))?;
    /// println!("rank {} of {}", world.rank(), world.world_size());
    /// # Ok(())
    /// # }
    /// ```
    pub fn here(ranks: u32) -> Result<Option<RankInfo>, StartError> {
        if std::env::var_os(STARTED).is_some() {
            end_with_starter();
            return Ok(Some(RankInfo::from_env(&Flags::default())?));
        }
        if !(1..=MOST).contains(&ranks) {
            return Err(StartError::Count { ranks });
        }
        let store = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), Limits::default())?;
        let mut started = Started(Vec::new());
        for rank in 0..ranks {
            let child = start(rank, ranks, store.local_addr());
            started.0.push(child.map_err(|source| StartError::Spawn { rank, source })?);
        }
        started.end().map(|()| None)
    }
}

fn start(rank: u32, ranks: u32, store: SocketAddr) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(STARTED, "1");
    // The variables of torchrun, whose agent serves the store likewise.
    let numbers = [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks)];
    command.envs(numbers.map(|(name, number)| (name, number.to_string())));
    command.env("MASTER_ADDR", store.ip().to_string());
    command.env("MASTER_PORT", store.port().to_string());
    command.env("TORCHELASTIC_USE_AGENT_STORE", "True");
    // This process alone has the other end of the pipe: see `end_with_starter`.
    command.stdin(Stdio::piped()).spawn()
}

impl Started {
    /// Waits for the end of all, which must be a good one.
    fn end(mut self) -> Result<(), StartError> {
        let (mut failed, mut last) = (None, Instant::now());
        let mut ended = vec![false; self.0.len()];
        while ended.contains(&false) && (failed.is_none() || last.elapsed() < GRACE) {
            for ((rank, child), ended) in (0..).zip(&mut self.0).zip(&mut ended) {
                if *ended {
                    continue;
                }
                let status = child.try_wait();
                let status = status.map_err(|source| StartError::Wait { rank, source })?;
                let Some(status) = status else { continue };
                (*ended, last) = (true, Instant::now());
                if !status.success() {
                    failed.get_or_insert(StartError::Failed { rank, status });
                }
            }
            // Leaves the processor to them.
            std::thread::sleep(LOOK);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Ends this process when its standard input does.
fn end_with_starter() {
    std::thread::spawn(|| {
        // Nothing is ever written; an error is an end as well.
        let _ = io::stdin().read(&mut [0]);
        eprintln!("failed: the process that started this rank has ended");
        std::process::exit(1);
    });
}
