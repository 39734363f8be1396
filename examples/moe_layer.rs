//! A mixture-of-experts layer over several ranks: a kernel chooses each token's experts, a dispatch takes
//! the rows there, a kernel runs the experts, a combine brings sums back. Compared bit for bit with the
//! layer as each rank computes it alone.
//!
//! ```text
//! moe_layer --procs 4 --experts 16 --top-k 4 --tokens 64
//! ```

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, Session, compare, sample, within};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::ep::{Combine, Ep, EpConfig, Tokens, Ways};
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::moe_layer::{MoeAlone, MoeExperts, MoeRouter};
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, RoutePolicy, ShmemError};

/// Tokens go to the ranks of their experts, and sums come back
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Experts of all ranks
    #[arg(long, default_value_t = 16)]
    experts: u32,
    /// Experts of a token, 1 to 32
    #[arg(long, default_value_t = 4)]
    top_k: u32,
    /// Tokens of each rank
    #[arg(long, default_value_t = 64)]
    tokens: u32,
    /// Elements of a token, a multiple of 8
    #[arg(long, default_value_t = 64)]
    hidden: u32,
    /// Layers, one after the other
    #[arg(short = 'n', long, default_value_t = 3)]
    rounds: u32,
    /// Routes between ranks: auto, direct, rdma, rdma:1,3 for those of some ranks; mixed is rdma:1
    #[arg(long, default_value = "auto", value_parser = parse_route)]
    route: RoutePolicy,
}

fn parse_route(text: &str) -> Result<RoutePolicy, ShmemError> {
    if text == "mixed" { "rdma:1".parse() } else { text.parse() }
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let Flags { job, experts, top_k, tokens, hidden, rounds, route } = &flags;
        within("--rounds", *rounds, 1, 1_000_000)?;
        within("--hidden", *hidden, 8, 1 << 14)?;
        within("--tokens", *tokens, 1, 1 << 12)?;
        let plan = format!("moe_layer {experts} {top_k} {tokens} {hidden} {rounds} {route}");
        job.run(&plan, |session, world| layers(session, world, &flags))
    })
}

fn layers(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let Flags { experts, top_k, tokens, hidden, .. } = *flags;
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
    let (packed, mine) = (ep.packed()?, config.experts_of(ranks, heap.rank()));
    let buffer = |each: u32| gpu.alloc(tokens as usize * each as usize, Place::Device);
    let (rows, sums, alone) = (buffer(2 * hidden)?, buffer(2 * hidden)?, buffer(2 * hidden)?);
    let (chosen, weights) = (buffer(4 * top_k)?, buffer(4 * top_k)?);
    let outputs = gpu.alloc(packed.rows.len(), Place::Device)?;
    #[rustfmt::skip] // One line for each kernel.
    let (router, whole, run_experts) = (
        MoeRouter { rows: KernelPtr::new(&rows), tokens, hidden, experts, top_k, chosen: KernelPtr::new(&chosen), weights: KernelPtr::new(&weights) },
        MoeAlone { rows: KernelPtr::new(&rows), tokens, hidden, top_k, chosen: KernelPtr::new(&chosen), weights: KernelPtr::new(&weights), sums: KernelPtr::new(&alone) },
        MoeExperts { packed: KernelPtr::new(&packed.rows), capacity: config.packed_rows(ep.ways(), heap.rank()), hidden, first: mine.start, local: mine.len() as u32, counts: KernelPtr::new(&packed.counts), bases: KernelPtr::new(&packed.bases), outputs: KernelPtr::new(&outputs) },
    );
    let mut time = Duration::ZERO;
    for round in 0..flags.rounds {
        let seed = (u64::from(round) << 16 | u64::from(heap.rank())) + 1;
        let mut bytes = sample(seed, rows.len());
        // Any bf16 of less than 2.
        bytes.iter_mut().skip(1).step_by(2).for_each(|high| *high &= 0xbf);
        gpu.write(&rows, 0, &bytes)?;
        session.run(&router, Dim::new(tokens.div_ceil(64), 64))?;
        let given = Tokens::new(tokens, &rows, &chosen, &weights);
        let begun = Instant::now();
        let routed = ep.dispatch(&heap, 0, &given, &packed)?;
        session.run(&run_experts, Dim::new(16, 64))?;
        ep.combine(&heap, routed, &outputs, &sums)?;
        time += begun.elapsed();
        session.run(&whole, Dim::new(16, 64))?;
        let mut expected = bytes.clone();
        gpu.read(&alone, 0, &mut expected)?;
        gpu.read(&sums, 0, &mut bytes)?;
        ensure!(expected.iter().any(|byte| *byte != 0), "the sums of layer {round} are all zero");
        compare(&expected, &bytes).with_context(|| format!("sums of layer {round}"))?;
    }
    world.barrier("compared")?;
    session.fact("channel_bytes", config.bytes(ep.ways())?);
    session.fact("layer_us", (time / flags.rounds).as_micros() as u64);
    session.facts([("tokens", tokens), ("hidden", hidden), ("top_k", top_k), ("experts", experts)]);
    let what = format!("{tokens} tokens of each of {ranks} ranks, {top_k} of {experts} experts");
    Ok(format!("{what}: the sums are those that each rank computes alone, bit for bit"))
}
