//! A link that loses, doubles, reorders, corrupts and delays what is sent, by seed.

use super::{Chance, FaultPlan, Link, Sent, TrainLimits};
use crate::Mtu;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

/// A datagram under way: when it arrives, its number, where it goes, its bytes.
type UnderWay = (Duration, u64, SocketAddr, Vec<u8>);

/// `inner` with faults in what is sent.
#[derive(Debug)]
pub struct Faulty<L> {
    inner: L,
    plan: FaultPlan,
    rng: StdRng,
    /// The next to arrive on top.
    waiting: BinaryHeap<Reverse<UnderWay>>,
    count: u64,
}

impl<L: Link> Faulty<L> {
    /// Wraps a link.
    pub fn new(inner: L, plan: FaultPlan) -> Self {
        let rng = StdRng::seed_from_u64(plan.seed);
        Self { inner, plan, rng, waiting: BinaryHeap::new(), count: 0 }
    }

    fn happens(&mut self, chance: Chance) -> bool {
        // Nothing is drawn for faults that a plan does not have: the others stay as they were.
        chance != Chance::NEVER
            && self.rng.random_range(0..Chance::ALWAYS.millionths()) < chance.millionths()
    }

    fn carry(&mut self, now: Duration, to: SocketAddr, datagram: &[u8]) {
        let mut bytes = datagram.to_vec();
        if self.happens(self.plan.corrupt) && !bytes.is_empty() {
            let at = self.rng.next_u32() as usize % bytes.len();
            bytes[at] ^= 1 << self.rng.random_range(0..8);
        }
        let late = if self.happens(self.plan.reorder) { self.plan.late } else { Duration::ZERO };
        self.count += 1;
        self.waiting.push(Reverse((now + self.plan.delay + late, self.count, to, bytes)));
    }

    /// Hands on what has arrived by now. What the link below does not take is lost.
    fn flush(&mut self, now: Duration) {
        while let Some(Reverse((due, ..))) = self.waiting.peek()
            && *due <= now
        {
            let Some(Reverse((_, _, to, bytes))) = self.waiting.pop() else { return };
            self.inner.send(now, to, &bytes, bytes.len());
        }
    }
}

impl<L: Link> Link for Faulty<L> {
    fn local(&self) -> SocketAddr {
        self.inner.local()
    }

    fn max_mtu(&self) -> Mtu {
        self.inner.max_mtu()
    }

    fn window_bytes(&self) -> usize {
        self.inner.window_bytes()
    }

    /// One datagram: their IPv4 identifications are all 0, in whatever order they are sent on.
    fn train_limits(&self) -> TrainLimits {
        TrainLimits { segments: 1, ..self.inner.train_limits() }
    }

    fn hides_ip_id(&self) -> bool {
        self.inner.hides_ip_id()
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        for datagram in train.chunks(segment.max(1)) {
            if self.happens(self.plan.loss) {
                continue;
            }
            self.carry(now, to, datagram);
            if self.happens(self.plan.duplicate) {
                self.carry(now, to, datagram);
            }
        }
        self.flush(now);
        Sent::Taken
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(SocketAddr, &[u8])) -> usize {
        self.flush(now);
        self.inner.receive(now, sink)
    }

    fn next_event(&self) -> Option<Duration> {
        let first = self.waiting.peek().map(|Reverse((due, ..))| *due);
        [first, self.inner.next_event()].into_iter().flatten().min()
    }
}
