//! Random requests between two hosts, and what must come of them: completions in order and once,
//! and the bytes in place by then.

use crate::ignored::scramble;
use crate::requests::{self, Request};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use warpverbs_dev::{Host, Net, PortConfig, addresses, bytes, sge};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, Region, SmallBuf};
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::num::{MAX_WQE, Rkey};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Chance, FaultPlan, Link, cable};
use warpverbs_nic::{Mr, Mtu, QpAttrs, QpState, Step};

/// Where things lie in either buffer of 64 KiB. The first bytes are random, and only read.
pub(crate) const SOURCE: usize = 8192;
pub(crate) const WRITES: u64 = 8192;
pub(crate) const READS: u64 = 24_576;
const RECEIVES: u64 = 40_960;
/// A word that the peer counts in, one that it swaps, and what its own atomics have brought.
pub(crate) const COUNTER: u64 = 57_344;
pub(crate) const SWAPPED: u64 = COUNTER + 8;
pub(crate) const RESULTS: u64 = COUNTER + 16;
/// Bytes of one message at most, and how many places WRITEs and READs have.
pub(crate) const MESSAGE: u64 = 1024;
pub(crate) const PLACES: u64 = 16;
const BUFFER: usize = 1 << 16;
/// WQEBBs of a request at most.
const LONGEST: u64 = 4;

/// The buffer of one end: as the NIC names it, and as the test sees it.
pub(crate) struct Buffer {
    pub(crate) mr: Mr,
    pub(crate) view: Region,
    /// The engine that reaches it, if the CPU does not.
    pub(crate) copier: Option<Arc<LazyCopier>>,
    /// Its first bytes at the start.
    pub(crate) source: Vec<u8>,
}

impl Buffer {
    fn new(host: &Host, on_device: bool, rng: &mut StdRng) -> Self {
        let mut source = vec![0; SOURCE];
        rng.fill_bytes(&mut source);
        let (mr, view, copier) = if on_device {
            let copier = Arc::new(LazyCopier::default());
            let (region, view) = LazyMemory::regions(BUFFER, 0, &copier).expect("memory");
            let mr = host.nic.reg_mr(&host.pd, &region, Access::all()).expect("a key");
            (mr, view, Some(copier))
        } else {
            (host.mr.clone(), host.mr.region().clone(), None)
        };
        view.write(0, &source).expect("inside");
        Self { mr, view, copier, source }
    }
}

/// Bytes that are in place when a request is complete, unless a later one goes there too.
pub(crate) struct Promise {
    pub(crate) at_peer: bool,
    pub(crate) place: u64,
    pub(crate) data: Vec<u8>,
}

struct Posted {
    index: u64,
    /// The WQEBB behind it.
    end: u64,
    opcode: SendOpcode,
    signaled: bool,
    promise: Option<Promise>,
    /// How many messages must have arrived.
    awaits: usize,
}

/// The requests that one end posted, and the completions that it has seen.
pub(crate) struct Side {
    pub(crate) buffer: Buffer,
    posted: Vec<Posted>,
    seen: usize,
    /// Messages sent: what arrives, and the bytes that go into a receive.
    pub(crate) sent: Vec<(ReceivedKind, usize, Vec<u8>)>,
    pub(crate) received: usize,
    /// Requests posted that end with a CQE.
    pub(crate) cqes: u32,
    pub(crate) adds: u64,
    /// Results of atomics so far.
    pub(crate) results: u64,
    /// The value of the word that it swaps at the peer.
    pub(crate) swapped: u64,
    /// The last bytes written to each of the peer's places.
    pub(crate) written: Vec<Vec<u8>>,
    /// Places that were read since the last fence: whoever changes one must wait for the READ.
    pub(crate) read: Vec<u64>,
    keys: Vec<Mr>,
    ring: u64,
    /// Bytes that its own requests had brought when the first of them failed.
    failed: Option<Vec<u8>>,
}

impl Side {
    fn new(buffer: Buffer, log_sq: u8) -> Self {
        Self {
            buffer,
            posted: vec![],
            seen: 0,
            sent: vec![],
            received: 0,
            cqes: 0,
            adds: 0,
            results: 0,
            swapped: 0,
            written: vec![vec![]; PLACES as usize],
            read: vec![],
            keys: vec![],
            ring: 1 << log_sq,
            failed: None,
        }
    }

    /// Memory that nobody but its own requests changes.
    fn brought(&self) -> Vec<u8> {
        let at = |place, len| bytes(&self.buffer.view, place, len);
        [at(READS, (PLACES * MESSAGE) as usize), at(RESULTS, BUFFER - RESULTS as usize)].concat()
    }

    /// WQEBBs between what is known to be done and `posted`.
    fn in_flight(&self, posted: u64) -> u64 {
        posted - self.seen.checked_sub(1).map_or(0, |last| self.posted[last].end)
    }

    /// WQEBBs behind the last request with a CQE.
    fn silent(&self, posted: u64) -> u64 {
        let last = self.posted.iter().rev().find(|posted| posted.signaled);
        posted - last.map_or(0, |last| last.end)
    }

    fn is_over(&self, peer: &Side) -> bool {
        self.seen == self.posted.len() && self.received == peer.sent.len()
    }
}

/// A key of memory that nothing else uses.
pub(crate) fn fresh_key(host: &Host, side: &mut Side) -> Rkey {
    let memory = SmallBuf::region(64);
    let mr = host.nic.reg_mr(&host.pd, &memory, Access::INVALIDATE).expect("a key");
    let key = Rkey(mr.rkey());
    side.keys.push(mr);
    key
}

/// Two hosts that talk.
pub(crate) struct Conversation {
    pub(crate) net: Net,
    pub(crate) rng: StdRng,
    sides: [Side; 2],
    seed: u64,
    /// It has so few retries that it is given up now and then.
    pub(crate) fragile: bool,
}

pub(crate) fn plan(rng: &mut StdRng) -> FaultPlan {
    let mut up_to =
        |max: u32| Chance::thousandths(if rng.random() { rng.random_range(0..=max) } else { 0 });
    FaultPlan {
        loss: up_to(200),
        duplicate: up_to(200),
        reorder: up_to(200),
        corrupt: up_to(50),
        seed: rng.random(),
        delay: Duration::from_micros(rng.random_range(0..50)),
        late: Duration::from_micros(rng.random_range(0..200)),
    }
}

impl Conversation {
    /// By seed, with the buffers of either end on a device or not.
    pub(crate) fn new(seed: u64, on_device: [bool; 2]) -> Self {
        Self::over(seed, on_device, || {
            let (a, b) = addresses();
            let (a, b) = cable(a, b);
            [Box::new(a), Box::new(b)]
        })
    }

    /// The same over these links, with faults by seed.
    pub(crate) fn over(
        seed: u64,
        on_device: [bool; 2],
        links: impl FnOnce() -> [Box<dyn Link>; 2],
    ) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mtus = [Mtu::B256, Mtu::B512, Mtu::B1024];
        let mtu = Some(mtus[rng.random_range(0..3)]);
        let depth = Some(rng.random_range(1..=16));
        let fragile = seed % 8 == 7;
        let retry = fragile.then(|| rng.random_range(0..2));
        let (max_rd_atomic, max_dest_rd_atomic) = (depth, depth);
        let attrs = QpAttrs { mtu, max_rd_atomic, max_dest_rd_atomic, retry, ..QpAttrs::default() };
        // Small rings go round many times.
        let log_sq = rng.random_range(4..=7);
        let ports = PortConfig { log_sq, ..PortConfig::default() };
        let net = Net::faulty(links(), plan(&mut rng), &ports, attrs).expect("two NICs");
        let [at_a, at_b] = on_device;
        let sides = [(&net.a, at_a), (&net.b, at_b)]
            .map(|(host, at)| Side::new(Buffer::new(host, at, &mut rng), log_sq));
        let mut conversation = Self { net, rng, sides, seed, fragile };
        let Self { net, sides, .. } = &mut conversation;
        for (host, side) in [&mut net.a, &mut net.b].into_iter().zip(sides) {
            (0..2).for_each(|nth| receive(host, &side.buffer, nth));
        }
        conversation
    }

    pub(crate) fn copiers(&self) -> impl Iterator<Item = &Arc<LazyCopier>> {
        self.sides.iter().filter_map(|side| side.buffer.copier.as_ref())
    }

    /// Posts a request at either end, if its ring has room.
    pub(crate) fn post(&mut self) {
        let Self { net: Net { a, b, .. }, rng, sides: [at_a, at_b], .. } = self;
        post((at_a, a), (at_b, b), rng);
        post((at_b, b), (at_a, a), rng);
    }

    /// How far both ends are.
    pub(crate) fn progress(&self) -> String {
        let [a, b] = [(&self.sides[0], &self.net.a), (&self.sides[1], &self.net.b)].map(
            |(side, host)| {
                let next: Vec<_> = side.posted[side.seen..]
                    .iter()
                    .map(|next| (next.opcode, next.signaled, next.awaits))
                    .collect();
                let (violations, stats) = (host.nic.take_violations(), host.nic.stats());
                let Side { posted, seen, received, sent, .. } = side;
                format!(
                    "{seen} of {} requests, {received} messages, {} sent; next: {next:?}; {violations:?} {stats:?}",
                    posted.len(),
                    sent.len()
                )
            },
        );
        format!("a: {a}\nb: {b}")
    }

    /// Makes known what was posted, with a CQE at the end of it.
    pub(crate) fn finish(&mut self) {
        let Self { net: Net { a, b, .. }, sides: [at_a, at_b], .. } = self;
        for (side, host) in [(at_a, a), (at_b, b)] {
            let index = host.port.post_wqe(|raw, at| WqeBuilder::nop(raw, at).signaled());
            let (opcode, signaled, end) = (SendOpcode::Nop, true, host.port.posted);
            side.posted.push(Posted { index, end, opcode, signaled, promise: None, awaits: 0 });
        }
    }

    /// Takes completions. `Some` at the end: whether everything arrived, or a requester gave up.
    pub(crate) fn poll(&mut self) -> Option<bool> {
        self.poll_one(0);
        self.poll_one(1);
        let [at_a, at_b] = &self.sides;
        if at_a.failed.is_some() || at_b.failed.is_some() {
            return Some(false);
        }
        (at_a.is_over(at_b) && at_b.is_over(at_a)).then_some(true)
    }

    fn poll_one(&mut self, side: usize) {
        let Self { net: Net { a, b, .. }, sides: [at_a, at_b], seed, .. } = self;
        match side {
            0 => poll(at_a, a, at_b, *seed),
            _ => poll(at_b, b, at_a, *seed),
        }
    }

    /// The process of one end gets no processor for a time, and that of the other goes on.
    pub(crate) fn stall(&mut self) {
        let stalled = self.rng.random_range(0..2);
        let other = 1 - stalled;
        // Without requests that wait for it, nobody can give it up: as long as it likes.
        let waits = self.sides[other].seen < self.sides[other].posted.len();
        let most = if waits { 27 } else { 34 };
        let log = self.rng.random_range(10..most);
        let time = Duration::from_nanos(self.rng.random_range(0..1 << log));
        let end = self.net.clock.now() + time;
        loop {
            let Net { a, b, .. } = &self.net;
            let nic = [&a.nic, &b.nic][other];
            let rests = (0..1_000_000).any(|_| nic.step() == Step::Idle);
            assert!(rests, "seed {}: the NIC does not come to rest", self.seed);
            self.poll_one(other);
            let Net { clock, a, b } = &self.net;
            let now = clock.now();
            let nic = [&a.nic, &b.nic][other];
            if nic.step() != Step::Idle {
                continue;
            }
            match nic.next_timer().filter(|wait| now + *wait <= end) {
                Some(wait) => clock.expire(wait),
                None => break clock.advance(end.saturating_sub(now)),
            }
        }
    }

    /// Checks memory at the end.
    pub(crate) fn check(&self) {
        let Self { net, sides: [at_a, at_b], seed, .. } = self;
        for (host, side, peer) in [(&net.a, at_a, at_b), (&net.b, at_b, at_a)] {
            assert_eq!(host.nic.take_violations(), [], "seed {seed}");
            if let Some(brought) = &side.failed {
                assert!(side.brought() == *brought, "seed {seed}: bytes after the end");
                assert_eq!(host.port.qp.state(), QpState::Err, "seed {seed}");
            }
            if side.failed.is_some() || peer.failed.is_some() {
                continue;
            }
            for promise in side.posted.iter().filter_map(|posted| posted.promise.as_ref()) {
                check(promise, side, peer, *seed);
            }
            let word = |at| {
                let word = bytes(&peer.buffer.view, at, 8).try_into().expect("8 bytes");
                u64::from_le_bytes(word)
            };
            assert_eq!([word(COUNTER), word(SWAPPED)], [side.adds, side.swapped], "seed {seed}");
            assert_eq!(peer.buffer.source, bytes(&peer.buffer.view, 0, SOURCE), "seed {seed}");
            assert_eq!(host.port.qp.state(), QpState::Rts, "seed {seed}");
        }
    }
}

fn check(promise: &Promise, side: &Side, peer: &Side, seed: u64) {
    let Promise { at_peer, place, data } = promise;
    let view = if *at_peer { &peer.buffer.view } else { &side.buffer.view };
    assert_eq!(bytes(view, *place, data.len()), *data, "seed {seed}");
}

fn announce(host: &Host) {
    host.port.announce();
}

/// Posts a random request from one host to the other.
fn post(from: (&mut Side, &mut Host), to: (&mut Side, &mut Host), rng: &mut StdRng) {
    let ((side, host), (peer, far)) = (from, to);
    // The last WQEBB is for `finish`.
    if side.in_flight(host.port.posted) + LONGEST >= side.ring {
        return announce(host);
    }
    // A CQE frees the ring; one in a quarter of it at least.
    let signaled = side.silent(host.port.posted) + LONGEST > side.ring / 4 || rng.random();
    let mut raw = [0; MAX_WQE];
    let at = host.port.position();
    let Request { wqe, opcode, promise, awaits } =
        requests::random((side, host), (peer, far), rng, &mut raw, at);
    let wqe = if signaled { wqe.signaled() } else { wqe };
    let len = wqe.finish().expect("a request that fits").len();
    scramble(&mut raw[..len], false, || rng.random());
    let index = host.port.put_bytes(&raw[..len]);
    if let Some(Promise { at_peer, place, .. }) = promise {
        for posted in &mut side.posted {
            posted.promise.take_if(|other| (other.at_peer, other.place) == (at_peer, place));
        }
    }
    side.cqes += u32::from(signaled);
    let end = host.port.posted;
    side.posted.push(Posted { index, end, opcode, signaled, promise, awaits });
    match rng.random_range(0..4) {
        // Later, together with others.
        0 => {}
        1 => {
            host.port.record();
            host.port.ring_last();
        }
        _ => announce(host),
    }
}

/// Takes completions: of messages in order, once, with the right bytes by then; of sends in order and
/// successful, until one fails and all after it are flushed.
fn poll(side: &mut Side, host: &mut Host, peer: &Side, seed: u64) {
    while let Some(cqe) = host.port.poll_recv() {
        if side.failed.is_some() || matches!(cqe, Cqe::Error { syndrome: Syndrome::WrFlush, .. }) {
            continue;
        }
        let nth = side.received;
        let (expected, len, data) = &peer.sent[nth];
        let good = matches!(cqe, Cqe::Receive { kind, byte_cnt, .. }
            if kind == *expected && byte_cnt as usize == *len);
        assert!(good, "seed {seed}: {cqe:?}, expected {expected:?} with {len} bytes");
        let at = RECEIVES + nth as u64 % 8 * MESSAGE;
        assert_eq!(bytes(&side.buffer.view, at, data.len()), *data, "seed {seed}, message {nth}");
        side.received += 1;
        receive(host, &side.buffer, nth as u64 + 2);
    }
    while let Some(cqe) = host.port.poll_send() {
        let (counter, error) = match cqe {
            Cqe::Requester { wqe_counter, .. } => (wqe_counter, None),
            Cqe::Error { wqe_counter, syndrome, .. } => (wqe_counter, Some(syndrome)),
            Cqe::Receive { .. } => panic!("seed {seed}: {cqe:?} in a send CQ"),
        };
        let rest = &side.posted[side.seen..];
        let at = rest.iter().position(|posted| posted.index as u16 == counter);
        let at = at.unwrap_or_else(|| panic!("seed {seed}: {cqe:?} of nothing that was posted"));
        let (before, this) = (&rest[..at], &rest[at]);
        match (error, &side.failed) {
            (None, None) => {
                let good = matches!(cqe, Cqe::Requester { opcode, .. } if opcode == this.opcode);
                assert!(good && this.signaled, "seed {seed}: {cqe:?}, expected {:?}", this.opcode);
                complete(side, at + 1, peer, seed);
            }
            (Some(Syndrome::TransportRetryExc), None) => {
                complete(side, at, peer, seed);
                side.failed = Some(side.brought());
                side.seen += 1;
            }
            (Some(Syndrome::WrFlush), Some(_)) if before.is_empty() => side.seen += 1,
            _ => {
                let rules = host.nic.take_violations();
                panic!("seed {seed}: {cqe:?}, {at} requests after the last, {rules:?}")
            }
        }
    }
}

/// The next `count` requests are done; all but the last have had no CQE to tell.
fn complete(side: &mut Side, count: usize, peer: &Side, seed: u64) {
    let done = &side.posted[side.seen..side.seen + count];
    for (nth, posted) in done.iter().enumerate() {
        assert!(!posted.signaled || nth + 1 == count, "seed {seed}: a CQE is missing");
        let arrived = side.received;
        assert!(posted.awaits <= arrived, "seed {seed}: waited for {}, {arrived}", posted.awaits);
        if let Some(promise) = &posted.promise {
            check(promise, side, peer, seed);
        }
    }
    side.seen += count;
}

fn receive(host: &mut Host, buffer: &Buffer, nth: u64) {
    let place = sge(&buffer.mr, RECEIVES + nth % 8 * MESSAGE, MESSAGE as u32);
    host.port.post_recv(&[place]);
}

/// Runs the seeds of `WARPVERBS_SEED` and `WARPVERBS_RUNS`: `simulate` returns whether everything
/// arrived with a seed; a failure to arrive is eight losses in a row.
pub(crate) fn simulate_all(runs: u64, simulate: impl Fn(u64) -> bool + Sync) {
    if let Some(seed) = warpverbs_dev::number("WARPVERBS_SEED") {
        println!("seed {seed}: everything arrived: {}", simulate(seed));
        return;
    }
    let runs = warpverbs_dev::runs(runs);
    // Campaigns take every processor.
    let threads = match runs {
        ..10_000 => 1,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let (next, given_up, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= runs {
                break;
            }
            let run = std::panic::AssertUnwindSafe(|| simulate(seed));
            match std::panic::catch_unwind(run) {
                Ok(arrived) => {
                    given_up.fetch_add(u64::from(!arrived), Ordering::Relaxed);
                }
                Err(panic) => {
                    failed.store(true, Ordering::Relaxed);
                    eprintln!("run failed; repeat it with WARPVERBS_SEED={seed}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    // That happens, but rarely.
    let given_up = given_up.into_inner();
    println!("{runs} runs, {given_up} of them given up");
    assert!(given_up <= runs / 100, "{given_up} of {runs} connections were given up");
}
