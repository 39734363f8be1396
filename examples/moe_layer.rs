//! A mixture-of-experts layer over several ranks: a kernel chooses each token's experts, a dispatch takes
//! the rows there, a kernel runs the experts, a combine brings sums back. Compared bit for bit with the
//! layer as each rank computes it alone.
//!
//! ```text
//! moe_layer --procs 4 --experts 16 --top-k 4 --tokens 64
//! moe_layer --procs 4 --kill 2
//! ```
//!
//! With `--kill` a rank is killed in the middle of a layer: the others name it, compute that layer again
//! without its experts, and two more layers later go on with the process that takes its place.

mod common;
mod moe;

use anyhow::Result;
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, Session, within};
use moe::life::{self, BEFORE};
use moe::{Moe, Sizes};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::ep::{Combine, Ep, EpConfig, EpError, Ways};
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, RoutePolicy, ShmemError};

/// Tokens go to the ranks of their experts, and sums come back
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    sizes: Sizes,
    /// Layers, one after the other; 3, or 8 with --kill
    #[arg(short = 'n', long)]
    rounds: Option<u32>,
    /// A rank that is killed in the middle of a layer, and comes back
    #[arg(long, value_name = "RANK")]
    kill: Option<u32>,
    /// Routes between ranks: auto, direct, rdma, rdma:1,3 for those of some ranks; mixed is rdma:1
    #[arg(long, default_value = "auto", value_parser = parse_route)]
    route: RoutePolicy,
}

fn parse_route(text: &str) -> Result<RoutePolicy, ShmemError> {
    if text == "mixed" { "rdma:1".parse() } else { text.parse() }
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let Flags { job, sizes, route, kill, .. } = &flags;
        let Sizes { experts, top_k, tokens, hidden } = *sizes;
        let (least, usual) = if kill.is_some() { (3 * BEFORE, 4 * BEFORE) } else { (1, 3) };
        let rounds = flags.rounds.unwrap_or(usual);
        within("--rounds", rounds, least.into(), 1_000_000)?;
        within("--hidden", hidden, 8, 1 << 14)?;
        within("--tokens", tokens, 1, 1 << 12)?;
        let Some(launch) = job.launch()? else { return Ok(()) };
        within("--kill", kill.unwrap_or(0), 0, u64::from(launch.world_size) - 1)?;
        if *kill == Some(launch.rank) && life::number().is_none() {
            return life::live_twice();
        }
        let plan = format!("{experts} {top_k} {tokens} {hidden} {rounds} {route} {kill:?}");
        let body = |session: &_, world: &mut _| layers(session, world, &flags, rounds);
        job.run_as(&launch, life::number() == Some(1), &plan, body)
    })
}

fn layers(session: &Session, world: &mut World, flags: &Flags, rounds: u32) -> Result<String> {
    let Flags { sizes: Sizes { experts, top_k, tokens, hidden }, kill, .. } = *flags;
    let (gpu, ranks) = (&session.gpu, world.world_size());
    let config = EpConfig::new(tokens, hidden, top_k, experts).combine(Combine::Exact);
    let most = config.bytes(Ways { ranks, lanes: 1, staged: true })?;
    let heap = HeapConfig::new(most + (1 << 16)).timeout(DEADLINE).routes(flags.route.clone());
    let mut heap = Heap::create(world, gpu, Some(&session.nic), &heap)?;
    if heap.rank() == 0 {
        session.say(&heap.report().to_string())?;
    }
    let mut ep = Ep::new(&mut heap, world, &config)?;
    ep.set_deadline(4 * DEADLINE);
    let moe = Moe::new(session, flags.sizes, &ep)?;
    let mut round = ep.last_regroup().map_or(0, |regrouped| regrouped.done[0]);
    let (mut time, mut away, mut back_at) = (Duration::ZERO, None, None);
    while round < rounds {
        if let Some(rank) = away.filter(|_| back_at == Some(round)) {
            world.barrier("admit")?; // All have ended the last layer.
            let generation = ep.admit(&mut heap, world, &[rank])?.generation;
            let back = format!("layer {round}: rank {rank} is back, generation {generation}");
            tell(session, &heap, &back)?;
            (away, back_at) = (None, None);
        }
        let error = match moe.layer(&mut ep, &heap, round, away) {
            Ok(took) => {
                (time, round) = (time + took, round + 1);
                continue;
            }
            Err(error) => error,
        };
        let lost = error.is::<EpError>().then(|| world.loss_within(DEADLINE)).flatten();
        let (Some(rank), Some(lost)) = (kill, lost) else { return Err(error) };
        tell(session, &heap, &format!("layer {round}: {lost}; {error:#}"))?;
        let regrouped = ep.exclude(&mut heap, world, &[rank])?;
        round = regrouped.done[0];
        tell(session, &heap, &format!("layer {round} again, by {:?}", regrouped.members))?;
        (away, back_at) = (Some(rank), Some(round + BEFORE));
    }
    world.barrier("compared")?;
    session.fact("channel_bytes", config.bytes(ep.ways())?);
    session.fact("layer_us", (time / rounds).as_micros() as u64);
    session.facts([("tokens", tokens), ("hidden", hidden), ("top_k", top_k), ("experts", experts)]);
    let what = format!("{tokens} tokens of each of {ranks} ranks, {top_k} of {experts} experts");
    Ok(format!("{what}: the sums are those that each rank computes alone, bit for bit"))
}

/// By every rank that lives: which of them sees what.
fn tell(session: &Session, heap: &Heap, line: &str) -> Result<()> {
    session.say(&format!("rank {}: {}", heap.rank(), line.replace('\n', "; ")))
}
