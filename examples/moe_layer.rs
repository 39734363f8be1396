//! A small mixture-of-experts layer over several ranks: a kernel chooses the experts of each token, a
//! dispatch takes the rows there, a kernel runs the experts, a combine brings the sums back. Compared bit
//! for bit with the layer as each rank computes it alone, with all experts.
//!
//! ```text
//! moe_layer --procs 4 --experts 16 --top-k 4 --tokens 64
//! moe_layer --rank R --world-size N --master-addr HOST --master-port PORT     (or under a launcher)
//! ```

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use common::job::Job;
use common::{DEADLINE, Session, compare, sample, within};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::ep::{Combine, Config, Ep, Packed, Tokens, Ways};
use warpverbs::gpu::{Buffer, Dim, KernelPtr, Place};
use warpverbs::kernels::moe_layer::{MoeAlone, MoeExperts, MoeRouter};
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, RoutePolicy};

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
    /// How ranks reach each other; mixed is RDMA from and to ranks of odd numbers
    #[arg(long, value_enum, default_value_t = RouteFlag::Auto)]
    route: RouteFlag,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RouteFlag {
    Auto,
    Direct,
    Rdma,
    Mixed,
}

impl RouteFlag {
    fn policy(self, ranks: u32) -> RoutePolicy {
        match self {
            Self::Auto => RoutePolicy::Auto,
            Self::Direct => RoutePolicy::Direct,
            Self::Rdma => RoutePolicy::Rdma,
            Self::Mixed => RoutePolicy::RdmaOf((1..ranks).step_by(2).collect()),
        }
    }
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let Flags { experts, top_k, tokens, hidden, rounds, route, .. } = flags;
        within("--rounds", rounds, 1, 1_000_000)?;
        within("--hidden", hidden, 8, 1 << 14)?;
        within("--tokens", tokens, 1, 1 << 12)?;
        let plan = format!(
            "moe_layer --experts {experts} --top-k {top_k} --tokens {tokens} --hidden {hidden} \
             -n {rounds} --route {route:?}"
        );
        flags.job.run(&plan, |session, world| layers(session, world, &flags))
    })
}

/// This rank's memory.
struct Memory {
    rows: Buffer,
    experts: Buffer,
    weights: Buffer,
    packed: Packed,
    outputs: Buffer,
    sums: Buffer,
    alone: Buffer,
}

impl Memory {
    fn new(session: &Session, ep: &Ep, flags: &Flags) -> Result<Self> {
        let buffer = |bytes: usize| session.gpu.alloc(bytes, Place::Device);
        let [tokens, hidden, top_k] =
            [flags.tokens, flags.hidden, flags.top_k].map(|number| number as usize);
        let packed = ep.packed()?;
        Ok(Self {
            rows: buffer(2 * tokens * hidden)?,
            experts: buffer(4 * tokens * top_k)?,
            weights: buffer(4 * tokens * top_k)?,
            outputs: buffer(packed.rows.len())?,
            packed,
            sums: buffer(2 * tokens * hidden)?,
            alone: buffer(2 * tokens * hidden)?,
        })
    }
}

fn layers(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let Flags { tokens, hidden, top_k, experts, .. } = *flags;
    let config = Config::new(tokens, hidden, top_k, experts).combine(Combine::Exact);
    let ranks = world.world_size();
    let most = config.bytes(Ways { ranks, lanes: 1, staged: true })?;
    let heap = HeapConfig::new(most + (1 << 16)).timeout(DEADLINE);
    let heap = heap.routes(flags.route.policy(ranks));
    let mut heap = Heap::create(world, &session.gpu, Some(&session.nic), &heap)?;
    if heap.rank() == 0 {
        session.say(&heap.report().to_string())?;
    }
    let mut ep = Ep::new(&mut heap, world, &config)?;
    ep.set_deadline(4 * DEADLINE);
    let memory = Memory::new(session, &ep, flags)?;
    let mut time = Duration::ZERO;
    for round in 0..flags.rounds {
        let rows = bf16s(u64::from(round) << 16 | u64::from(heap.rank()), tokens * hidden);
        session.gpu.write(&memory.rows, 0, &rows)?;
        time += layer(session, &mut ep, &heap, &memory, flags)?;
        let [sums, alone] = [&memory.sums, &memory.alone].map(|buffer| {
            let mut bytes = vec![0; buffer.len()];
            session.gpu.read(buffer, 0, &mut bytes).map(|()| bytes)
        });
        let alone = alone?;
        ensure!(alone.iter().any(|byte| *byte != 0), "the sums of layer {round} are all zero");
        compare(&alone, &sums?).with_context(|| format!("sums of layer {round}"))?;
    }
    world.barrier("compared")?;
    let bytes = config.bytes(ep.ways())?;
    session.facts([("tokens", tokens), ("hidden", hidden), ("top_k", top_k), ("experts", experts)]);
    session.facts([("rounds", flags.rounds), ("staged", ep.ways().staged.into())]);
    session.fact("channel_bytes", bytes);
    session.fact("dispatch_and_combine_us", (time / flags.rounds).as_micros() as u64);
    Ok(format!(
        "{tokens} tokens of each of {ranks} ranks, {top_k} of {experts} experts each: the sums are those of \
         one rank alone, bit for bit; a channel takes {bytes} bytes"
    ))
}

/// Random numbers from -2 to 2, bf16.
fn bf16s(seed: u64, count: u32) -> Vec<u8> {
    let small = |bytes: &[u8; 2]| {
        // A sign, one of the exponents of numbers from 2^-7 to 2, and any mantissa.
        let [low, high] = *bytes;
        let exponent = 120 + u16::from(high & 7);
        (u16::from(high & 0x80) << 8 | exponent << 7 | u16::from(low & 0x7f)).to_le_bytes()
    };
    sample(seed + 1, 2 * count as usize).as_chunks().0.iter().flat_map(small).collect()
}

/// One layer of this rank's tokens, and the same alone. How long dispatch and combine took.
fn layer(
    session: &Session,
    ep: &mut Ep,
    heap: &Heap,
    memory: &Memory,
    flags: &Flags,
) -> Result<Duration> {
    let Flags { tokens, hidden, top_k, experts, .. } = *flags;
    let Memory { rows, packed, outputs, sums, alone, .. } = memory;
    let (chosen, weights) = (&memory.experts, &memory.weights);
    let router = MoeRouter {
        rows: KernelPtr::new(rows),
        tokens,
        hidden,
        experts,
        top_k,
        chosen: KernelPtr::new(chosen),
        weights: KernelPtr::new(weights),
    };
    session.run(&router, Dim::new(tokens.div_ceil(64), 64))?;

    let begun = Instant::now();
    let tokens_here = Tokens { count: tokens, rows, experts: chosen, weights };
    let routed = ep.dispatch(heap, 0, &tokens_here, packed)?;
    let mut time = begun.elapsed();

    let mine = ep.config().experts_of(ep.ways().ranks, heap.rank());
    let run_experts = MoeExperts {
        packed: KernelPtr::new(&packed.rows),
        capacity: ep.config().packed_rows(ep.ways(), heap.rank()),
        hidden,
        first: mine.start,
        local: mine.len() as u32,
        counts: KernelPtr::new(&packed.counts),
        bases: KernelPtr::new(&packed.bases),
        outputs: KernelPtr::new(outputs),
    };
    session.run(&run_experts, Dim::new(16, 64))?;

    let begun = Instant::now();
    ep.combine(heap, routed, outputs, sums)?;
    time += begun.elapsed();

    let whole = MoeAlone {
        rows: KernelPtr::new(rows),
        tokens,
        hidden,
        top_k,
        chosen: KernelPtr::new(chosen),
        weights: KernelPtr::new(weights),
        sums: KernelPtr::new(alone),
    };
    session.run(&whole, Dim::new(16, 64))?;
    Ok(time)
}
