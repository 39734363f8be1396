//! A poster that is not ours: the device code of ROCm's MORI, compiled for this host from a folder of its
//! sources (`WARPVERBS_MORI`), posts from a process of its own to queues here while a NIC executes them. By
//! its library of one-sided calls, whose threads share a queue, and by the primitives beneath it.

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use rig::{Device, FROM, Kind, LANES, LEN, MOST, PIECE, Rig, Step, THREADS, TO, sources};
use warpverbs_dev::{Reported, bytes, seeds};
use warpverbs_nic::{CqMode, Status};
use warpverbs_rdma::{Data, Op, ReceivedKind, SendFlags, Sge, WorkRequest};

/// Steps of one thread with a piece of the peer's memory, by which `ours` and `theirs` become what they
/// should be, and what the thread fetches.
struct Plan {
    steps: Vec<Step>,
    fetched: Vec<u64>,
}

impl Plan {
    /// Steps of these kinds, one after the other.
    fn new(
        thread: u64,
        kinds: &[Kind],
        signals: bool,
        rng: &mut StdRng,
        (ours, theirs): (&mut [u8], &mut [u8]),
    ) -> Self {
        let mut plan = Self { steps: Vec::new(), fetched: Vec::new() };
        let start = thread * PIECE;
        // Where READs go: no two to one place, since they may end after what is posted behind them.
        let mut to = TO + start;
        for &kind in kinds {
            let len = match rng.random_range(0..4) {
                0 => 1024 * rng.random_range(1..=3),
                _ => rng.random_range(1..=MOST),
            };
            let word = start + 8 * rng.random_range(1..(PIECE - MOST) / 8 - 1);
            let from = FROM + rng.random_range(0..0x8000);
            let step =
                Step { thread, kind, here: from, there: word, bytes: len, value: rng.random() };
            plan.add(step, signals, &mut to, rng, (ours, theirs));
        }
        plan.steps.push(Step { kind: Kind::Quiet, ..*plan.steps.last().expect("some") });
        plan
    }

    fn add(
        &mut self,
        mut step: Step,
        signals: bool,
        to: &mut u64,
        rng: &mut StdRng,
        (ours, theirs): (&mut [u8], &mut [u8]),
    ) {
        let (here, at, len) = (step.here as usize, step.there as usize, step.bytes as usize);
        let word = |theirs: &[u8], at: usize| {
            u64::from_le_bytes(theirs[at..at + 8].try_into().expect("8 bytes"))
        };
        let set = |theirs: &mut [u8], at: usize, value: u64| {
            theirs[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        match step.kind {
            Kind::Put | Kind::PutAdd | Kind::PutSet => {
                theirs[at..at + len].copy_from_slice(&ours[here..here + len]);
                let before = word(theirs, at - 8);
                match step.kind {
                    Kind::PutAdd if signals => set(theirs, at - 8, before.wrapping_add(step.value)),
                    Kind::PutSet if signals => set(theirs, at - 8, step.value),
                    _ => {}
                }
            }
            Kind::PutValue => {
                step.bytes = [1, 2, 4, 8][rng.random_range(0..4)];
                let len = step.bytes as usize;
                theirs[at..at + len].copy_from_slice(&step.value.to_le_bytes()[..len]);
            }
            Kind::Add => set(theirs, at, word(theirs, at).wrapping_add(step.value)),
            Kind::FetchAdd => {
                self.fetched.push(word(theirs, at));
                set(theirs, at, word(theirs, at).wrapping_add(step.value));
            }
            Kind::CompareSwap => {
                let before = word(theirs, at);
                self.fetched.push(before);
                // Compared with what is there, or with something else.
                step.bytes = before.wrapping_add(rng.random_range(0..2));
                if step.bytes == before {
                    set(theirs, at, step.value);
                }
            }
            Kind::Get => {
                if *to + step.bytes > TO + (step.thread + 1) * PIECE {
                    return;
                }
                step.here = *to;
                ours[*to as usize..*to as usize + len].copy_from_slice(&theirs[at..at + len]);
                *to += step.bytes;
            }
            _ => {}
        }
        self.steps.push(step);
    }
}

/// Its one-sided calls.
const KINDS: [Kind; 9] = [
    Kind::FetchAdd,
    Kind::CompareSwap,
    Kind::Put,
    Kind::PutValue,
    Kind::PutAdd,
    Kind::PutSet,
    Kind::Add,
    Kind::Get,
    Kind::Quiet,
];

/// Every one-sided call of its library, by one thread and by several that share a queue.
#[test]
fn one_sided_calls_of_mori_are_executed() {
    let Some(sources) = sources() else { return };
    for device in Device::ALL {
        let collapsed = device != Device::Ionic;
        let mode = if collapsed { CqMode::Collapsed } else { CqMode::Ring };
        let mut rig = Rig::new(&sources, device, mode);
        for seed in seeds(10) {
            println!("{device:?}");
            let mut rng = StdRng::seed_from_u64(seed);
            for threads in [1, THREADS] {
                // With bnxt_re, a fetching call of MORI does not wait for its result while another thread
                // looks for completions (`ShmemQuietThreadKernelSerialImpl` returns).
                let fetching = device != Device::Bnxt || threads == 1;
                let kinds = &KINDS[if fetching { 0 } else { 2 }..];
                rig.one_sided(threads, "go", &mut rng, |rng| {
                    (0..100).map(|_| kinds[rng.random_range(0..kinds.len())]).collect()
                });
            }
            for _ in 0..20 {
                // As many as there is room for. Those that fetch or wait are not for lanes that meet.
                let kinds: Vec<_> = (0..5).map(|_| KINDS[rng.random_range(2..8)]).collect();
                rig.one_sided(LANES, "wave", &mut rng, |_| kinds.clone());
            }
        }
    }
}

impl Rig {
    /// Steps of each thread's `kinds`, by threads or lanes.
    fn one_sided(
        &mut self,
        threads: u64,
        how: &str,
        rng: &mut StdRng,
        kinds: impl Fn(&mut StdRng) -> Vec<Kind>,
    ) {
        let mut theirs = vec![0; (LANES * PIECE) as usize];
        rng.fill_bytes(&mut theirs);
        self.there.region().write(0, &theirs).unwrap();
        let mut ours = vec![0; LEN as usize];
        rng.fill_bytes(&mut ours[FROM as usize..]);
        self.shared.write(FROM, &ours[FROM as usize..]).unwrap();
        let plans: Vec<Plan> = (0..threads)
            .map(|thread| {
                let kinds = kinds(rng);
                // Of lanes that go together the last one alone posts a signal.
                let signals = how == "go" || thread + 1 == threads;
                Plan::new(thread, &kinds, signals, rng, (&mut ours, &mut theirs))
            })
            .collect();
        let steps: Vec<Step> = plans.iter().flat_map(|plan| plan.steps.clone()).collect();
        let fetched = self.run(&steps, how);
        let expected: Vec<_> = plans.into_iter().map(|plan| plan.fetched).collect();
        assert_eq!(fetched, expected, "{:?}", self.device);
        let found = bytes(self.there.region(), 0, theirs.len());
        same(&found, &theirs, format_args!("{:?}, {how}: at the peer, {steps:?}", self.device));
        let found = bytes(&self.shared, FROM, ours.len() - FROM as usize);
        same(&found, &ours[FROM as usize..], format_args!("{:?}, {how}: here", self.device));
    }
}

/// The bytes are what they should be.
fn same(found: &[u8], expected: &[u8], what: std::fmt::Arguments<'_>) {
    let at = found.iter().zip(expected).position(|(one, other)| one != other);
    assert_eq!(at, None, "{what}");
}

/// Its primitives: requests of which the last alone is signalled, completions from a ring, receives.
#[test]
fn primitives_of_mori_are_executed() {
    let Some(sources) = sources() else { return };
    for device in [Device::Mlx5, Device::Bnxt, Device::Ionic] {
        let mut rig = Rig::new(&sources, device, CqMode::Ring);
        for seed in seeds(10) {
            println!("{device:?}");
            let mut rng = StdRng::seed_from_u64(seed);
            for _ in 0..20 {
                rig.primitives(&mut rng);
            }
        }
    }
}

impl Rig {
    fn primitives(&mut self, rng: &mut StdRng) {
        let mut ours = vec![0; 0x8_0000];
        rng.fill_bytes(&mut ours);
        self.shared.write(FROM, &ours).unwrap();
        // mlx5 has no entries of zero length.
        let least = u64::from(self.device == Device::Mlx5);
        let (bytes_each, count) = (rng.random_range(least..=MOST), rng.random_range(1..16));
        let all = (bytes_each * count) as usize;
        let step = Step {
            thread: 0,
            kind: Kind::Writes,
            here: FROM,
            there: 64,
            bytes: bytes_each,
            value: count,
        };
        self.run(&[step], "go");
        assert!(bytes(self.there.region(), 64, all) == ours[..all], "{:?}: WRITEs", self.device);
        let place = |i: u64| self.there.addr() + 128 + i * bytes_each;
        let rooms: Vec<Sge> =
            (0..count).map(|i| Sge::new(place(i), bytes_each as u32, self.there.lkey())).collect();
        for room in rooms {
            self.peer.post_recv(if room.len == 0 { &[] } else { std::slice::from_ref(&room) });
        }
        self.run(&[Step { kind: Kind::Sends, ..step }], "go");
        assert!(bytes(self.there.region(), 128, all) == ours[..all], "{:?}: SENDs", self.device);
        let (kind, len, status) = (ReceivedKind::Send, bytes_each as u32, Status::Success);
        for _ in 0..count {
            assert_eq!(self.peer.poll_recv(), Some(Reported::Received { kind, len, status }));
        }
        assert_eq!(self.peer.poll_recv(), None);
        let bytes_each = bytes_each.max(1);
        self.run(&[Step { kind: Kind::Receives, here: TO, bytes: bytes_each, ..step }], "go");
        for i in 0..count {
            self.send(192 + i * bytes_each, bytes_each as u32);
        }
        let all = (bytes_each * count) as usize;
        assert!(bytes(&self.shared, TO, all) == bytes(self.there.region(), 192, all));
    }

    /// The peer sends what it has there, and waits until that has arrived.
    fn send(&mut self, offset: u64, len: u32) {
        let from = [Sge::new(self.there.addr() + offset, len, self.there.lkey())];
        let (op, data, flags) = (Op::Send, Data::Sges(&from), SendFlags::SIGNALED);
        self.peer.post(&WorkRequest { id: 0, op, data, flags });
        warpverbs_dev::rest([&self.nic]);
        let found = self.peer.poll_send();
        let ok = matches!(found, Some(Reported::Sent { status: Status::Success, .. }));
        assert!(ok, "{found:?}, {:?}: {:?}", self.device, self.nic.take_violations());
    }
}
