//! Random requests between two hosts, and what must come of them: completions in order and once,
//! and the bytes in place by then.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, Region};
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Chance, FaultPlan, Link, cable};
use warpverbs_nic::testing::{Host, Net, PortConfig, addresses, bytes, local, remote, sge};
use warpverbs_nic::{Mr, Mtu, QpAttrs, QpState};

/// Where things lie in either buffer of 64 KiB.
const WRITES: u64 = 8192;
const READS: u64 = 24_576;
const RECEIVES: u64 = 40_960;
const RESULTS: u64 = 57_344;
/// Bytes of one message at most.
const MESSAGE: u64 = 1024;
const BUFFER: usize = 1 << 16;

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(37) ^ salt).collect()
}

/// The buffer of one end: as the NIC names it, and as the test sees it.
pub(crate) struct Buffer {
    mr: Mr,
    pub(crate) view: Region,
    /// The engine that reaches it, if the CPU does not.
    pub(crate) copier: Option<Arc<LazyCopier>>,
}

impl Buffer {
    fn new(host: &Host, on_device: bool) -> Self {
        if !on_device {
            return Self { mr: host.mr.clone(), view: host.mr.region().clone(), copier: None };
        }
        let copier = Arc::new(LazyCopier::default());
        let (region, view) = LazyMemory::regions(BUFFER, 0, &copier).expect("memory");
        let mr = host.nic.reg_mr(&host.pd, &region, Access::all()).expect("a key");
        Self { mr, view, copier: Some(copier) }
    }
}

/// Bytes that are in place when a request is complete, unless a later one goes there too.
struct Promise {
    at_peer: bool,
    place: u64,
    data: Vec<u8>,
}

struct Posted {
    index: u64,
    opcode: SendOpcode,
    promise: Option<Promise>,
}

/// What one end posts, and has seen of it.
struct Side {
    buffer: Buffer,
    posted: Vec<Posted>,
    seen: usize,
    /// Messages sent, by length and salt.
    sent: Vec<(usize, u8)>,
    received: usize,
    adds: u64,
}

impl Side {
    fn new(buffer: Buffer) -> Self {
        Self { buffer, posted: vec![], seen: 0, sent: vec![], received: 0, adds: 0 }
    }

    fn promise(&mut self, at_peer: bool, place: u64, data: Vec<u8>) -> Option<Promise> {
        for posted in &mut self.posted {
            posted.promise.take_if(|other| (other.at_peer, other.place) == (at_peer, place));
        }
        Some(Promise { at_peer, place, data })
    }
}

/// Two hosts that talk.
pub(crate) struct Conversation {
    pub(crate) net: Net,
    pub(crate) rng: StdRng,
    sides: [Side; 2],
    seed: u64,
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
        let attrs =
            QpAttrs { mtu, max_rd_atomic: depth, max_dest_rd_atomic: depth, ..QpAttrs::default() };
        let ports = PortConfig { log_sq: 8, ..PortConfig::default() };
        let net = Net::faulty(links(), plan(&mut rng), &ports, attrs).expect("two NICs");
        let [at_a, at_b] = on_device;
        let sides = [(&net.a, at_a), (&net.b, at_b)]
            .map(|(host, on_device)| Side::new(Buffer::new(host, on_device)));
        let mut conversation = Self { net, rng, sides, seed };
        let Self { net, sides, .. } = &mut conversation;
        for (host, side) in [&mut net.a, &mut net.b].into_iter().zip(sides) {
            side.buffer.view.write(0, &pattern(8192, 0)).expect("inside");
            (0..2).for_each(|nth| receive(host, &side.buffer, nth));
        }
        conversation
    }

    pub(crate) fn copiers(&self) -> impl Iterator<Item = &Arc<LazyCopier>> {
        self.sides.iter().filter_map(|side| side.buffer.copier.as_ref())
    }

    /// Posts a request at either end.
    pub(crate) fn post(&mut self, nth: u64) {
        let Self { net: Net { a, b, .. }, rng, sides: [at_a, at_b], .. } = self;
        post(at_a, &at_b.buffer, a, rng, nth);
        post(at_b, &at_a.buffer, b, rng, nth);
    }

    /// Takes completions. `Some` at the end: whether everything arrived, or a requester gave up.
    pub(crate) fn poll(&mut self) -> Option<bool> {
        let Self { net: Net { a, b, .. }, sides: [at_a, at_b], seed, .. } = self;
        if poll(at_a, a, at_b, *seed) || poll(at_b, b, at_a, *seed) {
            return Some(false);
        }
        let over = |side: &Side, peer: &Side| {
            side.seen == side.posted.len() && side.received == peer.sent.len()
        };
        (over(at_a, at_b) && over(at_b, at_a)).then_some(true)
    }

    /// What memory holds in the end.
    pub(crate) fn check(&self) {
        let Self { net, sides: [at_a, at_b], seed, .. } = self;
        for (host, side, peer) in [(&net.a, at_a, at_b), (&net.b, at_b, at_a)] {
            for promise in side.posted.iter().filter_map(|posted| posted.promise.as_ref()) {
                check(promise, side, peer, *seed);
            }
            let word = |side: &Side, at| {
                let word = bytes(&side.buffer.view, at, 8).try_into().expect("8 bytes");
                u64::from_le_bytes(word)
            };
            assert_eq!(word(peer, RESULTS), side.adds, "seed {seed}");
            for nth in 0..side.adds {
                assert_eq!(word(side, RESULTS + 8 + nth * 8), nth, "seed {seed}");
            }
            assert_eq!(host.port.qp.state(), QpState::Rts, "seed {seed}");
            assert_eq!(host.nic.take_violations(), [], "seed {seed}");
        }
    }
}

fn check(promise: &Promise, side: &Side, peer: &Side, seed: u64) {
    let Promise { at_peer, place, data } = promise;
    let view = if *at_peer { &peer.buffer.view } else { &side.buffer.view };
    assert_eq!(bytes(view, *place, data.len()), *data, "seed {seed}");
}

/// Posts a random request from `from`. Sources of payload are never written again.
fn post(side: &mut Side, to: &Buffer, from: &mut Host, rng: &mut StdRng, nth: u64) {
    let len = rng.random_range(1..=MESSAGE);
    let data = pattern(len as usize, nth as u8);
    let own = nth % 16 * MESSAGE;
    let port = &mut from.port;
    let source = |at: u64, len: usize| pattern(8192, 0)[at as usize..at as usize + len].to_vec();
    let here = &side.buffer.mr;
    let (index, opcode, promise) = match rng.random_range(0..6) {
        0 | 1 => {
            let target = remote(&to.mr, WRITES + own);
            let inline = &data[..data.len().min(200)];
            let (index, data) = if rng.random() {
                let index = port
                    .post_wqe(|b, at| WqeBuilder::write(b, at, target).inline(inline).signaled());
                (index, inline.to_vec())
            } else {
                // The first 8 KiB hold the pattern of salt 0 and are only read; two pieces.
                let len = len.max(2);
                let cut = rng.random_range(1..len) as u32;
                let (first, second) = (sge(here, 16, cut), sge(here, 4000, len as u32 - cut));
                let index = port.post_wqe(|b, at| {
                    WqeBuilder::write(b, at, target).sge(first).sge(second).signaled()
                });
                let data = [source(16, cut as usize), source(4000, len as usize - cut as usize)];
                (index, data.concat())
            };
            (index, SendOpcode::RdmaWrite, side.promise(true, WRITES + own, data))
        }
        2 => {
            let (from, place) = (remote(&to.mr, 100), sge(here, READS + own, len as u32));
            let index = port.post_wqe(|b, at| WqeBuilder::read(b, at, from).sge(place).signaled());
            let promise = side.promise(false, READS + own, source(100, len as usize));
            (index, SendOpcode::RdmaRead, promise)
        }
        3 => {
            let inline = &data[..data.len().min(200)];
            side.sent.push((inline.len(), nth as u8));
            let index = port.post_wqe(|b, at| {
                WqeBuilder::send_imm(b, at, nth as u32).inline(inline).signaled()
            });
            (index, SendOpcode::SendImm, None)
        }
        4 => {
            let index = port.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
            (index, SendOpcode::Nop, None)
        }
        _ => {
            let (word, place) = (remote(&to.mr, RESULTS), RESULTS + 8 + side.adds * 8);
            let result = local(here, place);
            let data = side.adds.to_le_bytes().to_vec();
            side.adds += 1;
            let index =
                port.post_wqe(|b, at| WqeBuilder::fetch_add(b, at, word, 1, result).signaled());
            (index, SendOpcode::AtomicFa, side.promise(false, place, data))
        }
    };
    side.posted.push(Posted { index, opcode, promise });
}

/// Takes completions: of sends in order and successful, of messages in order, once, with the right
/// bytes by then. True if the requester has given up.
fn poll(side: &mut Side, host: &mut Host, peer: &mut Side, seed: u64) -> bool {
    while let Some(cqe) = host.port.poll_send() {
        let Posted { index, opcode: expected, ref promise } = side.posted[side.seen];
        if matches!(cqe, Cqe::Error { syndrome: Syndrome::TransportRetryExc, .. }) {
            return true;
        }
        let good = matches!(cqe, Cqe::Requester { wqe_counter, opcode, .. }
            if wqe_counter == index as u16 && opcode == expected);
        assert!(good, "seed {seed}: {cqe:?}, expected {expected:?} {index}");
        if let Some(promise) = promise {
            check(promise, side, peer, seed);
        }
        side.seen += 1;
    }
    while let Some(cqe) = host.port.poll_recv() {
        let nth = side.received;
        let (len, salt) = peer.sent[nth];
        let good = matches!(cqe, Cqe::Receive { kind: ReceivedKind::SendImm(_), byte_cnt, .. }
            if byte_cnt as usize == len);
        assert!(good, "seed {seed}: {cqe:?}, expected {len} bytes");
        let at = RECEIVES + nth as u64 % 8 * MESSAGE;
        assert_eq!(bytes(&side.buffer.view, at, len), pattern(len, salt), "seed {seed} {nth}");
        side.received += 1;
        receive(host, &side.buffer, nth as u64 + 2);
    }
    false
}

fn receive(host: &mut Host, buffer: &Buffer, nth: u64) {
    let place = sge(&buffer.mr, RECEIVES + nth % 8 * MESSAGE, MESSAGE as u32);
    host.port.post_recv(&[place]);
}

/// What `WARPVERBS_SEED` and `WARPVERBS_RUNS` ask for: `simulate` says of a seed whether everything
/// arrived; not to arrive is eight losses in a row.
pub(crate) fn simulate_all(runs: u64, simulate: impl Fn(u64) -> bool) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let Some(seed) = number("WARPVERBS_SEED") {
        println!("seed {seed}: everything arrived: {}", simulate(seed));
        return;
    }
    let runs = number("WARPVERBS_RUNS").unwrap_or(runs);
    let given_up = (0..runs).filter(|&seed| !simulate(seed)).count() as u64;
    // That happens, but rarely.
    assert!(given_up <= runs / 100, "{given_up} of {runs} connections were given up");
}
