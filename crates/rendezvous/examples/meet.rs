//! Meets the other ranks of a job and says who they are. Start it with any launcher:
//! `torchrun --no-python --nproc-per-node 4 meet`, `mpirun -n 4 meet`, `srun -n 4 meet`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use warpverbs_rendezvous::{Flags, RankInfo, World, WorldConfig};

fn main() -> ExitCode {
    match meet() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("meet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn meet() -> Result<(), Box<dyn std::error::Error>> {
    let launch = RankInfo::from_env(&Flags::default())?;
    let config = WorldConfig::new(&launch).timeout(Duration::from_secs(30));
    let mut world = World::join(&config)?;
    let start = Instant::now();
    let mine = format!("process {} started by {}", std::process::id(), launch.launcher);
    let all = world.exchange("who", mine.as_bytes())?;
    let took = start.elapsed();
    if world.rank() == 0 {
        for (rank, who) in all.iter().enumerate() {
            println!("rank {rank}: {}", String::from_utf8_lossy(who));
        }
        println!("exchanged in {took:.1?}");
    }
    Ok(world.leave()?)
}
