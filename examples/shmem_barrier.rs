//! All ranks of a symmetric heap meet again and again; what each wrote before is there for all
//! behind the barrier.
//!
//! ```text
//! shmem_barrier --procs 3
//! shmem_barrier --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, Session, within, words};
use std::process::ExitCode;
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::shm_coll::ShmRounds;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, TEAM_BLOCK_BYTES};

/// Ranks meet in a symmetric heap
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// How often they meet; where ranks share cores, a round takes milliseconds
    #[arg(short = 'n', long, default_value_t = 512)]
    rounds: u32,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--rounds", flags.rounds, 1, 1 << 20)?;
        flags.job.run(&format!("shmem_barrier -n {}", flags.rounds), |session, world| {
            meet(session, world, &flags)
        })
    })
}

fn meet(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let (gpu, nic, ranks) = (&session.gpu, &session.nic, world.world_size());
    let mut heap =
        Heap::create(world, gpu, Some(nic), &HeapConfig::new(1 << 20).timeout(DEADLINE))?;
    if heap.rank() == 0 {
        session.say(&heap.report().to_string())?;
    }
    // A word of each rank, where it writes the number of the round; zero before anybody writes.
    let row = heap.alloc_zeroed::<u64>(world, ranks.into())?;
    let team = heap.alloc_zeroed::<u8>(world, TEAM_BLOCK_BYTES)?;
    let missing = gpu.alloc(8, Place::Device)?;
    let (words_at, team_block, rounds) = (row.offset(), team.offset(), flags.rounds);
    let wrong = KernelPtr::new(&missing);
    let time = heap.run(world, Dim::new(1, 128), 10 * DEADLINE, |heap, status| ShmRounds {
        heap,
        words: words_at,
        team_block,
        rounds,
        wrong,
        status,
    })?;

    // Nobody gives its heap back while the kernel of another still needs it.
    world.barrier("done")?;
    let [missing] = words(gpu, &missing)?;
    ensure!(missing == 0, "{missing} words were not there behind the barrier");
    let mut found = vec![0; 8 * ranks as usize];
    heap.read(&row, &mut found)?;
    let last = u64::from(rounds).to_le_bytes();
    ensure!(found.chunks(8).all(|word| word == last), "the last words are {found:?}");
    session.fact("rounds", rounds);
    let each = time / rounds;
    Ok(format!("nobody of {ranks} left before everybody had come, {rounds} times, each {each:.1?}"))
}
