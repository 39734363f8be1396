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

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::job::Job;
use common::{DEADLINE, Session, compare, sample, within};
use rustix::process::{Signal, getpid, kill_process};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use warpverbs::ep::{Combine, Ep, EpConfig, EpError, Packed, Tokens, Ways};
use warpverbs::gpu::{Buffer, Dim, KernelPtr, Place};
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

/// Set in the processes that a rank's first one starts when it is to be killed: number of its life.
const LIFE: &str = "MOE_LAYER_LIFE";
/// Layers before the killed rank's last, and that the others run without it.
const BEFORE: u32 = 2;

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let Flags { job, experts, top_k, tokens, hidden, route, kill, .. } = &flags;
        let (least, usual) = if kill.is_some() { (3 * BEFORE, 4 * BEFORE) } else { (1, 3) };
        let rounds = flags.rounds.unwrap_or(usual);
        within("--rounds", rounds, least.into(), 1_000_000)?;
        within("--hidden", *hidden, 8, 1 << 14)?;
        within("--tokens", *tokens, 1, 1 << 12)?;
        let Some(launch) = job.launch()? else { return Ok(()) };
        within("--kill", kill.unwrap_or(0), 0, u64::from(launch.world_size) - 1)?;
        let life = std::env::var(LIFE).ok().map(|life| life == "1");
        if *kill == Some(launch.rank) && life.is_none() {
            return live_twice();
        }
        let comes_back = life == Some(true);
        let plan =
            format!("moe_layer {experts} {top_k} {tokens} {hidden} {rounds} {route} {kill:?}");
        job.run_as(&launch, comes_back, &plan, |session, world| {
            layers(session, world, &flags, rounds)
        })
    })
}

/// Runs this rank as a process that is killed, and then as one that takes its place.
fn live_twice() -> Result<()> {
    for life in ["0", "1"] {
        let mut process = Command::new(std::env::current_exe()?);
        let status = process.args(std::env::args_os().skip(1)).env(LIFE, life).status()?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        ensure!(if life == "0" { killed } else { status.success() }, "life {life}: {status}");
    }
    Ok(())
}

/// Memory and sizes of a layer on one rank.
struct Moe<'a> {
    session: &'a Session,
    flags: &'a Flags,
    config: EpConfig,
    packed: Packed,
    rows: Buffer,
    chosen: Buffer,
    weights: Buffer,
    outputs: Buffer,
    sums: Buffer,
    alone: Buffer,
}

impl<'a> Moe<'a> {
    fn new(session: &'a Session, flags: &'a Flags, ep: &Ep) -> Result<Self> {
        let Flags { top_k, tokens, hidden, .. } = *flags;
        let gpu = &session.gpu;
        let buffer = |each: u32| gpu.alloc(tokens as usize * each as usize, Place::Device);
        let packed = ep.packed()?;
        Ok(Self {
            session,
            flags,
            config: ep.config().clone(),
            rows: buffer(2 * hidden)?,
            chosen: buffer(4 * top_k)?,
            weights: buffer(4 * top_k)?,
            outputs: gpu.alloc(packed.rows.len(), Place::Device)?,
            sums: buffer(2 * hidden)?,
            alone: buffer(2 * hidden)?,
            packed,
        })
    }

    /// One layer, without the experts of a rank that is away. How long dispatch, experts and combine took.
    fn layer(&self, ep: &mut Ep, heap: &Heap, round: u32, away: Option<u32>) -> Result<Duration> {
        let Flags { experts, top_k, tokens, hidden, .. } = *self.flags;
        let (session, gpu, ways) = (self.session, &self.session.gpu, ep.ways());
        let mine = self.config.experts_of(ways.ranks, heap.rank());
        let Self { packed, rows, chosen, weights, outputs, sums, alone, .. } = self;
        #[rustfmt::skip] // One line for each kernel.
        let (router, whole, run_experts) = (
            MoeRouter { rows: KernelPtr::new(rows), tokens, hidden, experts, top_k, chosen: KernelPtr::new(chosen), weights: KernelPtr::new(weights) },
            MoeAlone { rows: KernelPtr::new(rows), tokens, hidden, top_k, chosen: KernelPtr::new(chosen), weights: KernelPtr::new(weights), sums: KernelPtr::new(alone) },
            MoeExperts { packed: KernelPtr::new(&packed.rows), capacity: self.config.packed_rows(ways, heap.rank()), hidden, first: mine.start, local: mine.len() as u32, counts: KernelPtr::new(&packed.counts), bases: KernelPtr::new(&packed.bases), outputs: KernelPtr::new(outputs) },
        );
        let seed = (u64::from(round) << 16 | u64::from(heap.rank())) + 1;
        let mut bytes = sample(seed, rows.len());
        // Any bf16 of less than 2.
        bytes.iter_mut().skip(1).step_by(2).for_each(|high| *high &= 0xbf);
        gpu.write(rows, 0, &bytes)?;
        session.run(&router, Dim::new(tokens.div_ceil(64), 64))?;
        let given = Tokens::new(tokens, rows, chosen, weights);
        let begun = Instant::now();
        let routed = ep.dispatch(heap, 0, &given, packed).map_err(EpError::from)?;
        if round == BEFORE && is_to_die() {
            kill_process(getpid(), Signal::KILL)?;
        }
        session.run(&run_experts, Dim::new(16, 64))?;
        ep.combine(heap, routed, outputs, sums).map_err(EpError::from)?;
        let time = begun.elapsed();
        if let Some(away) = away {
            self.forget(&self.config.experts_of(ways.ranks, away))?;
        }
        session.run(&whole, Dim::new(16, 64))?;
        let mut expected = bytes.clone();
        gpu.read(alone, 0, &mut expected)?;
        gpu.read(sums, 0, &mut bytes)?;
        ensure!(expected.iter().any(|byte| *byte != 0), "the sums of layer {round} are all zero");
        compare(&expected, &bytes).with_context(|| format!("sums of layer {round}"))?;
        Ok(time)
    }

    /// Choices of these experts count as none.
    fn forget(&self, gone: &Range<u32>) -> Result<()> {
        let mut chosen = vec![0; self.chosen.len()];
        self.session.gpu.read(&self.chosen, 0, &mut chosen)?;
        for choice in chosen.as_chunks_mut().0 {
            if gone.contains(&u32::from_le_bytes(*choice)) {
                *choice = (-1i32).to_le_bytes();
            }
        }
        Ok(self.session.gpu.write(&self.chosen, 0, &chosen)?)
    }
}

fn is_to_die() -> bool {
    std::env::var(LIFE).is_ok_and(|life| life == "0")
}

fn layers(session: &Session, world: &mut World, flags: &Flags, rounds: u32) -> Result<String> {
    let Flags { experts, top_k, tokens, hidden, kill, .. } = *flags;
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
    let moe = Moe::new(session, flags, &ep)?;
    let mut round = ep.last_regroup().map_or(0, |regrouped| regrouped.done[0]);
    let (mut time, mut away, mut back_at) = (Duration::ZERO, None, None);
    while round < rounds {
        if let Some(rank) = away.filter(|_| back_at == Some(round)) {
            // All have ended the last layer.
            world.barrier("admit")?;
            let generation = ep.admit(&mut heap, world, &[rank])?.generation;
            tell(
                session,
                &heap,
                &format!("layer {round}: rank {rank} is back, generation {generation}"),
            )?;
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
        let members = regrouped.members;
        tell(session, &heap, &format!("layer {round} again, by ranks {members:?}"))?;
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
