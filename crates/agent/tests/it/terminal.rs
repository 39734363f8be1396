//! A terminal state is terminal, on every path: after it nothing of a transfer lands, and nothing is read
//! for it. Transfers are cancelled and run out of time at random moments; what is put in their place
//! afterwards stays.

use crate::bed::{self, SOON, by};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, CopyBy, Op, PathKind, PostOptions, Registration, RemoteMemory,
    State, Transfer,
};
use warpverbs_dev::{Child, say};
use warpverbs_gpu::Gpu;
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};

pub(crate) const LEN: usize = 6 << 20;
const ROUNDS: usize = 16;
/// Looks at memory after a transfer was over.
const LOOKS: usize = 4;

/// Each lane has two mappings, of which a process has 65530, and tests run beside each other.
pub(crate) fn few_lanes() -> SimtConfig {
    SimtConfig::default().resident_lanes(1024)
}

/// The agent whose memory is used; in a process of its own where the path needs that.
enum Target {
    Gone,
    Here { agent: Agent, memory: Registration },
    Child { _child: Child, address: SocketAddr },
}

impl Target {
    fn new(path: PathKind) -> Self {
        if path == PathKind::ProcessCopy {
            let mut child = Child::of_test("terminal::target", "AGENT_TERMINAL", 1);
            let address = child.said().parse().unwrap();
            return Self::Child { _child: child, address };
        }
        let agent = Agent::new("target", by(path)).unwrap();
        let memory = match path {
            PathKind::Mapped => agent.alloc(LEN as u64, "memory").unwrap(),
            _ => agent.register(vec![0; LEN], "memory").unwrap(),
        };
        Self::Here { agent, memory }
    }

    /// Its memory, where it is in this process.
    fn look(&self) -> Option<Vec<u8>> {
        let Self::Here { memory, .. } = self else { return None };
        Some(memory.to_vec().unwrap())
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Here { agent, .. } => agent.address(),
            Self::Child { address, .. } => *address,
            Self::Gone => panic!("the target has ended"),
        }
    }
}

/// The part of another process.
#[test]
fn target() {
    if std::env::var_os("AGENT_TERMINAL").is_some() {
        let agent = Agent::new("target", by(PathKind::ProcessCopy)).unwrap();
        let _memory = agent.register(vec![0; LEN], "memory").unwrap();
        say(agent.address());
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

pub(crate) struct Rig {
    agent: Agent,
    /// Memory of the transfers, and memory by which the peer's is examined.
    pub(crate) ours: Registration,
    pub(crate) seen: Registration,
    remote: RemoteMemory,
    random: StdRng,
    target: Target,
}

impl Rig {
    fn new(path: PathKind) -> Self {
        Self::with(path, by(path))
    }

    /// With an initiator of this configuration.
    pub(crate) fn with(path: PathKind, config: AgentConfig) -> Self {
        println!("{path}");
        let target = Target::new(path);
        let agent = Agent::new("initiator", config).unwrap();
        let ours = agent.register(vec![0; LEN], "ours").unwrap();
        let seen = agent.register(vec![0; LEN], "seen").unwrap();
        agent.fetch_metadata(target.address(), SOON).unwrap();
        let remote = agent.remote("target", "memory").unwrap();
        let random = StdRng::seed_from_u64(warpverbs_dev::seed());
        Self { agent, ours, seen, remote, random, target }
    }

    /// The target ends.
    pub(crate) fn lose_target(&mut self) {
        self.target = Target::Gone;
    }

    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        warpverbs_dev::pattern(LEN, self.random.random())
    }

    pub(crate) fn transfer(&self, op: Op, local: &Registration, block: usize) -> Transfer {
        let (block, count) = (block as u64, LEN / block);
        let here = local.blocks(0, block, count).unwrap();
        let there: Vec<_> = (0..count as u64).rev().map(|at| at * block).collect();
        let there = self.remote.blocks_at(&there, block).unwrap();
        self.agent.transfer(op, &here, &there).unwrap()
    }

    /// Posts a transfer that is to end early; it is over when this returns.
    fn end_early(&mut self, transfer: &Transfer, round: usize) -> State {
        // The first ends early for certain where it is a copy of the CPU.
        let at_once = round == 0;
        let micros = if at_once { 0 } else { self.random.random_range(0..3000) };
        let by_deadline = at_once || self.random.random::<bool>();
        let options = match by_deadline {
            true => PostOptions::new().deadline(Duration::from_micros(micros)),
            false => PostOptions::new(),
        };
        std::thread::scope(|scope| {
            if !by_deadline {
                scope.spawn(|| {
                    // Any moment will do: it is drawn.
                    let start = Instant::now();
                    while start.elapsed() < Duration::from_micros(micros) {
                        std::thread::yield_now();
                    }
                    transfer.cancel();
                });
            }
            // Its error is its state's.
            let _ = transfer.post(options);
            let start = Instant::now();
            while !transfer.state().is_terminal() {
                assert!(start.elapsed() < SOON, "it does not end");
                std::thread::yield_now();
            }
        });
        match transfer.wait(SOON) {
            Ok(state) => assert_eq!(state, State::Done),
            Err(AgentError::Cancelled) => assert!(!by_deadline),
            Err(error) => assert!(matches!(error, AgentError::Timeout { .. }), "{error}"),
        }
        transfer.state()
    }

    pub(crate) fn run(&self, transfer: &Transfer) {
        bed::run(transfer);
    }
}

fn holds(path: PathKind) {
    holds_of(Rig::new(path), ROUNDS);
}

fn holds_of(mut rig: Rig, rounds: usize) {
    let mut early = 0;
    for round in 0..rounds {
        let block = [4 << 10, 64 << 10, LEN][round % 3];
        let write = rig.transfer(Op::Write, &rig.ours, block);
        let old = rig.bytes();
        rig.ours.write(0, &old).unwrap();
        let ended = rig.end_early(&write, round);
        early += usize::from(ended != State::Done);
        // Nothing lands at the peer, and nothing is read here: neither the old bytes nor these.
        let at_end = rig.target.look();
        let unsaid = rig.bytes();
        rig.ours.write(0, &unsaid).unwrap();
        for _ in 0..LOOKS {
            assert!(rig.target.look() == at_end, "round {round}: bytes landed after {ended:?}");
        }
        let new = rig.bytes();
        rig.seen.write(0, &new).unwrap();
        rig.run(&rig.transfer(Op::Write, &rig.seen, LEN));
        let look = rig.transfer(Op::Read, &rig.seen, LEN);
        for _ in 0..LOOKS {
            rig.seen.write(0, &old).unwrap();
            rig.run(&look);
            assert!(
                rig.seen.to_vec().unwrap() == new,
                "round {round}: the peer's memory has changed"
            );
            assert!(rig.target.look().is_none_or(|there| there == new));
        }
        // A READ leaves the memory here alone, and nothing of what the peer has there later comes.
        let read = rig.transfer(Op::Read, &rig.ours, block);
        let ended = rig.end_early(&read, round);
        early += usize::from(ended != State::Done);
        rig.ours.write(0, &old).unwrap();
        rig.seen.write(0, &unsaid).unwrap();
        rig.run(&rig.transfer(Op::Write, &rig.seen, LEN));
        for _ in 0..LOOKS {
            rig.run(&look);
            assert!(
                rig.ours.to_vec().unwrap() == old,
                "round {round}: bytes landed here after {ended:?}"
            );
        }
    }
    println!("{early} of {} ended early", 2 * rounds);
    assert!(early > 0);
}

#[test]
fn same_process() {
    holds(PathKind::SameProcess);
}

#[test]
fn mapped() {
    holds(PathKind::Mapped);
}

#[test]
fn process_copy() {
    holds(PathKind::ProcessCopy);
}

#[test]
fn network() {
    holds(PathKind::Network);
}

#[test]
fn tcp() {
    holds(PathKind::Tcp);
}

/// Where kernels copy, too.
#[test]
fn paths_by_which_kernels_copy() {
    for path in [PathKind::SameProcess, PathKind::Mapped, PathKind::ProcessCopy] {
        let gpu: Arc<dyn Gpu> = Arc::new(SimtDevice::new(few_lanes()).unwrap());
        holds_of(Rig::with(path, by(path).gpu(&gpu).copy_by(CopyBy::Kernel)), 4);
    }
}

/// A copy within `post` ends at its deadline, too.
#[test]
fn a_deadline_ends_copies_of_the_cpu() {
    for path in [PathKind::SameProcess, PathKind::Mapped, PathKind::ProcessCopy] {
        let mut rig = Rig::new(path);
        for block in [LEN, 64 << 10] {
            let write = rig.transfer(Op::Write, &rig.ours, block);
            let bytes = rig.bytes();
            rig.ours.write(0, &bytes).unwrap();
            let late = write.post(PostOptions::new().deadline(Duration::from_nanos(1)));
            assert!(matches!(late, Err(AgentError::Timeout { .. })), "{path}: {late:?}");
            assert_eq!(write.state(), State::Failed);
            rig.run(&write);
        }
    }
}

/// A short deadline of one transfer is no other's end.
#[test]
fn a_transfer_that_is_late_leaves_others_of_the_same_peer_alone() {
    for path in [PathKind::Network, PathKind::Tcp] {
        let mut rig = Rig::new(path);
        let bytes = rig.bytes();
        rig.ours.write(0, &bytes).unwrap();
        let long = rig.transfer(Op::Write, &rig.ours, 512);
        let short = rig.transfer(Op::Read, &rig.seen, 4 << 10);
        let mut late = 0;
        for _ in 0..20 {
            long.post(PostOptions::new()).unwrap();
            let posted = short.post(PostOptions::new().deadline(Duration::from_micros(1)));
            let ended = posted.and_then(|_| short.wait(SOON));
            late += usize::from(ended.is_err());
            assert_eq!(long.wait(SOON).unwrap(), State::Done, "{path}");
        }
        assert!(late > 0, "{path}");
    }
}
