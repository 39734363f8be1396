//! A link that loses, doubles, reorders, corrupts and delays what is sent, by seed.

use super::{Arrival, Chance, FaultPlan, Link, Peer, QpnPart, Sent, TrainLimits};
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
    /// Datagrams before the next that is lost, if no other fault is planned: these may go together.
    before_loss: Option<usize>,
}

impl<L: Link> Faulty<L> {
    /// Wraps a link.
    pub fn new(mut inner: L, plan: FaultPlan) -> Self {
        inner.keep_icrc();
        let rng = StdRng::seed_from_u64(plan.seed);
        let (waiting, before_loss) = (BinaryHeap::new(), None);
        let mut faulty = Self { inner, plan, rng, waiting, count: 0, before_loss };
        let FaultPlan { duplicate, reorder, corrupt, delay, .. } = plan;
        if [duplicate, reorder, corrupt] == [Chance::NEVER; 3] && delay.is_zero() {
            faulty.before_loss = Some(faulty.foresee());
        }
        faulty
    }

    fn happens(&mut self, chance: Chance) -> bool {
        // Nothing is drawn for faults that a plan does not have: the others stay as they were.
        chance != Chance::NEVER
            && self.rng.random_range(0..Chance::ALWAYS.millionths()) < chance.millionths()
    }

    /// How many datagrams go before one is lost.
    fn foresee(&mut self) -> usize {
        if self.plan.loss == Chance::NEVER {
            return usize::MAX;
        }
        (0..).find(|_| self.happens(self.plan.loss)).unwrap_or(usize::MAX)
    }

    /// Sends, or loses, datagrams of which all but a lone one go before the next loss.
    fn lose(
        &mut self,
        before: usize,
        now: Duration,
        to: SocketAddr,
        train: &[u8],
        segment: usize,
    ) -> Sent {
        let count = train.len().div_ceil(segment.max(1));
        let Some(left) = before.checked_sub(count) else {
            self.before_loss = Some(self.foresee());
            return Sent::Taken;
        };
        let sent = self.inner.send(now, to, train, segment);
        if sent != Sent::Blocked {
            self.before_loss = Some(left);
        }
        sent
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

    /// Hands on the datagrams that have arrived by now. Those that the link below does not take are
    /// lost.
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
    fn inner(&self) -> Option<&dyn Link> {
        Some(&self.inner)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Link> {
        Some(&mut self.inner)
    }

    fn local(&self) -> SocketAddr {
        self.inner.local()
    }

    fn max_mtu(&self) -> Mtu {
        self.inner.max_mtu()
    }

    /// One datagram: their IPv4 identifications are all 0, in whatever order they are sent on. If
    /// they are only lost, no more than go before the next loss, or the one that is lost.
    fn train_limits(&self) -> TrainLimits {
        let limits = self.inner.train_limits();
        let segments = self.before_loss.map_or(1, |before| before.clamp(1, limits.segments));
        TrainLimits { segments, ..limits }
    }

    fn describe(&self) -> String {
        format!("{}, with faults", self.inner.describe())
    }

    /// The link inside keeps it, and need not be asked.
    fn wants_icrc(&mut self, _now: Duration, _to: SocketAddr, _part: QpnPart) -> bool {
        true
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        if let Some(before) = self.before_loss {
            return self.lose(before, now, to, train, segment);
        }
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

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.flush(now);
        self.inner.receive(now, sink)
    }

    /// Nothing while datagrams are late: they have not left.
    fn peer(&mut self, now: Duration, to: SocketAddr, part: QpnPart) -> Peer {
        if self.waiting.is_empty() { self.inner.peer(now, to, part) } else { Peer::Unknown }
    }

    fn next_event(&self) -> Option<Duration> {
        let first = self.waiting.peek().map(|Reverse((due, ..))| *due);
        [first, self.inner.next_event()].into_iter().flatten().min()
    }
}
