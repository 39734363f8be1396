//! Memory that bounces, with a device and a copy engine that do as much as chance says: whatever
//! completes is in place, everything completes once and in order, and all bytes are right.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use warpverbs_dev::{Device, FakePlan, ProxiedConfig, ProxiedPair, bytes, sge};
use warpverbs_mem::Region;
use warpverbs_mem::testing::LazyCopier;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::Mr;

/// Every operation has a slot of its own, so that none depends on another.
const SLOT: u64 = 64;
const OPS: u64 = 48;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Write {
        gpu: bool,
    },
    Inline,
    Read {
        gpu: bool,
    },
    /// From the other end, into a receive of this one.
    Receive {
        gpu: bool,
        len: u32,
    },
}

struct World {
    pair: ProxiedPair,
    gpu: Mr,
    view: Region,
    copier: Arc<LazyCopier>,
    ops: Vec<Op>,
    sent: usize,
    received: usize,
}

fn data(slot: u64) -> Vec<u8> {
    (0..SLOT).map(|i| (slot * 37 + i * 5 + 1) as u8).collect()
}

impl World {
    fn new(rng: &mut StdRng) -> Self {
        let mut plan =
            FakePlan { seed: rng.random(), staging: Some((8, 64)), ..FakePlan::default() };
        plan.takes_at_most = rng.random_bool(0.5).then_some(3);
        plan.polls_at_most = rng.random_bool(0.5).then_some(3);
        plan.limits.send_depth = rng.random_range(2..20);
        plan.limits.recv_depth = rng.random_range(2..20);
        plan.limits.inline_bytes = [0, 16, 64][rng.random_range(0..3)];
        let pair = ProxiedPair::new(ProxiedConfig { plan, ..ProxiedConfig::default() }).unwrap();
        let (Device { mr: gpu, view, copier }, _) = pair.bounced();
        Self { pair, gpu, view, copier, ops: Vec::new(), sent: 0, received: 0 }
    }

    /// Slots of the own memory are ever the same.
    fn own(&self, gpu: bool) -> &Region {
        if gpu { &self.view } else { self.pair.a.mr.region() }
    }

    fn post(&mut self, op: Op) {
        let slot = self.ops.len() as u64;
        let (at, all) = (slot * SLOT, SLOT as u32);
        let from = |gpu: bool, len| {
            if gpu { sge(&self.gpu, at, len) } else { sge(&self.pair.a.mr, at, len) }
        };
        let (to, peer) = (self.pair.b.remote(at), self.pair.b.mr.region().clone());
        match op {
            Op::Write { gpu } => {
                self.own(gpu).write(at, &data(slot)).unwrap();
                let from = from(gpu, all);
                self.pair.a.port.post_wqe(|b, i| WqeBuilder::write(b, i, to).sge(from).signaled());
            }
            Op::Inline => {
                let data = data(slot);
                self.pair
                    .a
                    .port
                    .post_wqe(|b, i| WqeBuilder::write(b, i, to).inline(&data).signaled());
            }
            Op::Read { gpu } => {
                peer.write(at, &data(slot)).unwrap();
                let into = from(gpu, all);
                self.pair.a.port.post_wqe(|b, i| WqeBuilder::read(b, i, to).sge(into).signaled());
            }
            Op::Receive { gpu, len } => {
                let into = from(gpu, all);
                self.pair.a.port.post_recv(&[into]);
                // A message needs its receive at the device.
                self.pair.nic.step();
                let (source, data) = (sge(&self.pair.b.mr, at, len), data(slot));
                peer.write(at, &data).unwrap();
                self.pair.b.port.post_wqe(|b, i| WqeBuilder::send(b, i).sge(source));
            }
        }
        self.ops.push(op);
    }

    /// Completed work is in place, in the order in which it was posted.
    fn check(&mut self) {
        let sends: Vec<usize> = self.of(|op| !matches!(op, Op::Receive { .. }));
        for (_, error) in self.pair.a.port.sent() {
            assert_eq!(error, None);
            self.is_there(sends[self.sent]);
            self.sent += 1;
        }
        let receives = self.of(|op| matches!(op, Op::Receive { .. }));
        for (_, error) in self.pair.a.port.received() {
            assert_eq!(error, None);
            self.is_there(receives[self.received]);
            self.received += 1;
        }
    }

    fn of(&self, kind: impl Fn(&Op) -> bool) -> Vec<usize> {
        (0..self.ops.len()).filter(|&i| kind(&self.ops[i])).collect()
    }

    fn is_there(&self, slot: usize) {
        let (op, at, expected) = (self.ops[slot], slot as u64 * SLOT, data(slot as u64));
        let (region, len) = match op {
            Op::Write { .. } | Op::Inline => (self.pair.b.mr.region(), SLOT as usize),
            Op::Read { gpu } => (self.own(gpu), SLOT as usize),
            Op::Receive { gpu, len } => (self.own(gpu), len as usize),
        };
        let mut expected = expected;
        expected[len..].fill(0);
        assert_eq!(bytes(region, at, SLOT as usize), expected, "{op:?} in slot {slot}");
    }
}

fn run(seed: u64) {
    let rng = &mut StdRng::seed_from_u64(seed);
    let mut world = World::new(rng);
    for turn in 0..100_000 {
        match rng.random_range(0..6) {
            0 if (world.ops.len() as u64) < OPS => {
                let gpu = rng.random_bool(0.7);
                let op = match rng.random_range(0..5) {
                    0 | 1 => Op::Write { gpu },
                    2 => Op::Inline,
                    3 => Op::Read { gpu },
                    _ => Op::Receive { gpu, len: rng.random_range(1..=SLOT as u32) },
                };
                world.post(op);
            }
            1 | 2 => drop(world.pair.nic.step()),
            3 => drop(world.pair.device.progress(rng.random_range(0..4))),
            4 => world.copier.allow(rng.random_range(0..3)),
            _ => world.check(),
        }
        if world.ops.len() as u64 == OPS && world.sent + world.received == OPS as usize {
            assert!(turn > OPS as usize);
            return;
        }
    }
    panic!("{} and {} of {OPS} have completed", world.sent, world.received);
}

#[test]
fn whatever_completes_is_in_place_and_in_order() {
    warpverbs_dev::seeds(200).for_each(run);
}
