//! Any bytes as a script of posting: what the fuzz target and the corpus test run.
//!
//! The first byte picks the doorbell policy; then each command is a byte, with operands behind it.
//! Raw WQEs are helped a little, so that checks behind the first are reached: see [`help`].

use std::time::Duration;
use warpverbs_dev::{Pair, PairConfig, PortConfig, bytes};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_nic::{AsyncEvent, Config, DoorbellPolicy, Mr, QpAttrs, QpState};

pub(crate) const PAGE: usize = 4096;
pub(crate) const GUARD: u8 = 0xc3;

/// Takes operands off the front of a script; zeros after its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (now, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut out = [0; N];
        out[..now.len()].copy_from_slice(now);
        out
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }
}

/// A registered page between two that must stay as they are.
pub(crate) struct Guarded {
    whole: Region,
    pub(crate) mr: Mr,
}

impl Guarded {
    pub(crate) fn new(pair: &Pair) -> Self {
        let whole = HostBuf::region(3 * PAGE).unwrap();
        whole.fill(0, 3 * PAGE, GUARD).unwrap();
        let page = whole.slice(PAGE as u64, PAGE).unwrap();
        let mr = pair.nic.reg_mr(&pair.pd, &page, Access::all()).unwrap();
        Self { whole, mr }
    }

    pub(crate) fn is_intact(&self) -> bool {
        let guard = [GUARD; PAGE];
        bytes(&self.whole, 0, PAGE) == guard && bytes(&self.whole, 2 * PAGE as u64, PAGE) == guard
    }
}

/// Replaces index and QPN if byte 8 asks for it, and in every 16-byte segment a key of
/// 0xaa...... by a real one with an address in or near its region.
fn help(raw: &mut [u8], position: [u8; 8], mr: &Mr) {
    if raw.len() >= 64 && raw[8] == 0 {
        raw[1..3].copy_from_slice(&position[1..3]);
        raw[4..7].copy_from_slice(&position[4..7]);
    }
    for segment in raw.chunks_exact_mut(16) {
        let near = |low: [u8; 2]| {
            let offset = u64::from(u16::from_be_bytes(low)) % (PAGE as u64 + 64);
            (mr.addr() + offset).to_be_bytes()
        };
        // Data segment: key at 4, address at 8. Remote address segment: the other way round.
        if segment[4] == 0xaa {
            let addr = near([segment[14], segment[15]]);
            segment[4..8].copy_from_slice(&mr.lkey().to_be_bytes());
            segment[8..].copy_from_slice(&addr);
        } else if segment[8] == 0xaa {
            let addr = near([segment[6], segment[7]]);
            segment[8..12].copy_from_slice(&mr.rkey().to_be_bytes());
            segment[..8].copy_from_slice(&addr);
        }
    }
}

/// The outcome of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Send completions without error.
    pub(crate) succeeded: u32,
    /// Send completions with an error.
    pub(crate) failed: u32,
}

impl Outcome {
    fn drain(&mut self, pair: &mut Pair) {
        while let Some(cqe) = pair.a.poll_send() {
            match cqe {
                Cqe::Error { .. } => self.failed += 1,
                _ => self.succeeded += 1,
            }
        }
        while pair.b.poll_recv().is_some() {}
    }
}

/// Panics if the NIC does, does not come to rest, touches what is not registered, or counts other
/// completions than it writes.
pub(crate) fn exercise(input: &[u8]) -> Outcome {
    let mut script = Script(input);
    let policy = match script.byte() % 4 {
        0 => DoorbellPolicy::DoorbellFirst,
        1 => DoorbellPolicy::RecordFirst,
        2 => DoorbellPolicy::Random,
        _ => DoorbellPolicy::DropThenRecover { polls: 2 },
    };
    let nic = Config { policy, seed: Some(1), record_polls: 3, ..Config::default() };
    let a = PortConfig { log_sq: 4, log_cq: 4, ..PortConfig::default() };
    let mut pair = Pair::new(PairConfig { nic, a, ..PairConfig::default() }).unwrap();
    let memory = Guarded::new(&pair);
    let mut outcome = Outcome::default();
    while !script.0.is_empty() {
        command(&mut pair, &mut script, &memory.mr, &mut outcome);
    }
    // Longer than all retries of a lost answer; receivers that are never ready are asked for ever.
    pair.run_for(Duration::from_secs(2));
    outcome.drain(&mut pair);
    assert!(memory.is_intact());
    // Counters say what was found.
    let stats = pair.nic.stats();
    let (cqes, done) = (u64::from(outcome.succeeded + outcome.failed), stats.qps.wqes.total());
    assert!(u64::from(outcome.succeeded) <= done, "{outcome:?} {stats:?}");
    let overran = std::iter::from_fn(|| pair.nic.poll_event())
        .any(|event| matches!(event, AsyncEvent::CqError { .. }));
    assert!(
        cqes == stats.qps.send_cqes || overran || stats.events_lost > 0,
        "{outcome:?} {stats:?}"
    );
    assert_eq!((stats.stale_slots, stats.live_qps, stats.live_keys), (0, 2, 3));
    outcome
}

fn command(pair: &mut Pair, script: &mut Script<'_>, mr: &Mr, outcome: &mut Outcome) {
    match script.byte() % 10 {
        0 | 1 => {
            let (mut raw, wqebbs) = (script.take::<192>(), 1 + usize::from(script.byte()) % 3);
            let at = pair.a.position();
            let place = warpverbs_mlx5::doorbell::Doorbell::Next { qpn: at.qpn, next: at.index };
            help(&mut raw[..wqebbs * 64], place.bytes(), mr);
            pair.a.put_bytes(&raw[..wqebbs * 64]);
        }
        2 => {
            let mut raw = script.take::<64>();
            help(&mut raw[..48], [0; 8], mr);
            pair.b.post_recv_bytes(&raw);
        }
        3 => pair.a.record(),
        4 => pair.a.ring(),
        5 => pair.a.ring_last(),
        6 => pair.a.ring_bytes(script.take()),
        7 => {
            pair.nic.step();
            outcome.drain(pair);
        }
        8 => pair.clock.advance(Duration::from_millis(script.byte().into())),
        _ => match script.byte() % 2 {
            0 => pair.b.qp.modify(QpState::Err, &QpAttrs::default()).unwrap(),
            _ => pair.restart(),
        },
    }
}
