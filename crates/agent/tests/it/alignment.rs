//! Memory that begins and ends anywhere.

use crate::bed::{SOON, by, pair, run, tell};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, BlockList, CopyBy, Op, PathKind, Registration,
};
use warpverbs_dev::{Child, say};
use warpverbs_mem::testing::shifted;

/// Blocks here and there, of one length: at distances of at least that there.
struct Case {
    op: Op,
    len: usize,
    here: Vec<usize>,
    there: Vec<usize>,
}

fn bytes(random: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill_bytes(&mut bytes);
    bytes
}

impl Case {
    /// For memories of these lengths. Targets do not overlap.
    fn new(random: &mut StdRng, here: usize, there: usize) -> Self {
        let op = if random.random() { Op::Read } else { Op::Write };
        let len = random.random_range(1..300);
        let count = random.random_range(1..40.min(here.min(there) / len));
        let mut disjoint = |all: usize| -> Vec<usize> {
            let slack = random.random_range(0..=all % len);
            let mut places: Vec<_> = (0..all / len).map(|at| slack + at * len).collect();
            places.shuffle(random);
            places.truncate(count);
            places
        };
        let (here, there) = (disjoint(here), disjoint(there));
        Self { op, len, here, there }
    }

    /// What is in both memories afterwards.
    fn expect(&self, here: &mut [u8], there: &mut [u8]) {
        for (&a, &b) in self.here.iter().zip(&self.there) {
            let (a, b) = (&mut here[a..a + self.len], &mut there[b..b + self.len]);
            match self.op {
                Op::Read => a.copy_from_slice(b),
                Op::Write => b.copy_from_slice(a),
            }
        }
    }

    fn at(&self, offsets: &[usize]) -> (Vec<u64>, u64) {
        (offsets.iter().map(|at| *at as u64).collect(), self.len as u64)
    }

    fn here(&self, memory: &Registration) -> BlockList {
        let (offsets, len) = self.at(&self.here);
        memory.blocks_at(&offsets, len).unwrap()
    }
}

fn odd(random: &mut StdRng, from: usize) -> usize {
    from + 2 * random.random_range(0..500) + 1
}

#[test]
fn memory_at_any_address_is_moved_within_a_process() {
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let configs: [&dyn Fn() -> AgentConfig; 4] = [
        &|| AgentConfig::default(),
        &|| AgentConfig::default().copy_by(CopyBy::Kernel),
        &|| by(PathKind::Network),
        &|| by(PathKind::Tcp),
    ];
    for config in configs {
        let (initiator, target) = pair(config);
        for _ in 0..10 {
            let mut memory = |agent: &Agent| {
                let (shift, len) = (odd(&mut random, 0), odd(&mut random, 1000));
                let region = shifted(shift, len).unwrap();
                assert!(!region.addr().is_multiple_of(2));
                let filled = bytes(&mut random, len);
                region.write(0, &filled).unwrap();
                (agent.register(region, "m").unwrap(), filled)
            };
            let (ours, mut here) = memory(&initiator);
            let (theirs, mut there) = memory(&target);
            tell(&initiator, &target);
            for _ in 0..5 {
                let case = Case::new(&mut random, here.len(), there.len());
                let (offsets, len) = case.at(&case.there);
                let to = theirs.blocks_at(&offsets, len).unwrap();
                run(&initiator.transfer(case.op, &case.here(&ours), &to).unwrap());
                case.expect(&mut here, &mut there);
                assert!(ours.to_vec().unwrap() == here && theirs.to_vec().unwrap() == there);
            }
        }
    }
}

const LEN: usize = 4999;

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The part of another process.
#[test]
fn target() {
    let Ok(seed) = std::env::var("ALIGNMENT_TARGET") else { return };
    let mut random = StdRng::seed_from_u64(seed.parse().unwrap());
    let agent = Agent::new("target", AgentConfig::default().token("of the test")).unwrap();
    let region = shifted(odd(&mut random, 0), LEN).unwrap();
    region.write(0, &bytes(&mut random, LEN)).unwrap();
    let memory = agent.register(region, "m").unwrap();
    say(agent.address());
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "sum");
        say(sum(&memory.to_vec().unwrap()));
    }
}

#[test]
fn memory_at_any_address_is_moved_between_processes() {
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    odd(&mut random, 0);
    let first = bytes(&mut random, LEN);
    for path in [PathKind::ProcessCopy, PathKind::Tcp] {
        let mut there = first.clone();
        let mut child = Child::of_test("alignment::target", "ALIGNMENT_TARGET", seed);
        let agent = Agent::new("initiator", by(path)).unwrap();
        agent.fetch_metadata(child.said().parse().unwrap(), SOON).unwrap();
        let remote = agent.remote("target", "m").unwrap();
        assert!(!remote.addr().is_multiple_of(2));
        let len = odd(&mut random, 3000);
        let region = shifted(odd(&mut random, 0), len).unwrap();
        let mut here = bytes(&mut random, len);
        region.write(0, &here).unwrap();
        let ours = agent.register(region, "m").unwrap();
        for _ in 0..50 {
            let case = Case::new(&mut random, len, LEN);
            let (offsets, len) = case.at(&case.there);
            let to = remote.blocks_at(&offsets, len).unwrap();
            match agent.transfer(case.op, &case.here(&ours), &to) {
                Ok(transfer) => run(&transfer),
                Err(refused @ AgentError::NoPath { .. }) if path == PathKind::ProcessCopy => {
                    eprintln!("SKIPPED: {refused}");
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            case.expect(&mut here, &mut there);
            assert!(ours.to_vec().unwrap() == here);
            assert_eq!(child.ask("sum"), sum(&there).to_string());
        }
    }
}
