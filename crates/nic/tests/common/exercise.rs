//! Any bytes as a script of posting to queues of any format: what the fuzz target and the corpus test run.
//!
//! The first byte picks the formats, the second the doorbell policy, and whether there is one NIC or two;
//! then each command is a byte, with operands behind it. Raw WQEs are helped a little, so that checks behind
//! the first are reached: see [`help`].

use crate::rig::{LEN, Rig};
use std::time::Duration;
use warpverbs_dev::{PortConfig, QueueFormat, Receives, Reported};
use warpverbs_nic::{
    AsyncEvent, Config, Dialect, DoorbellPolicy, Mr, QpAttrs, QpState, SoftNic, Status,
};
use warpverbs_rdma::QueueKind;

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

/// Replaces keys and addresses, wherever a format has them: what begins with 0xaa is a key of `here`, with
/// 0xab an address in or near it; 0xac and 0xad are the same of `there`.
fn help(raw: &mut [u8], dialect: Dialect, [here, there]: [&Mr; 2]) {
    let is_little = matches!(dialect, Dialect::Bnxt(_));
    for word in raw.chunks_exact_mut(8) {
        if is_little {
            word.reverse();
        }
        let mr = |mark: u8| if mark < 0xac { here } else { there };
        if let mark @ (0xab | 0xad) = word[0] {
            let offset = u64::from(u16::from_be_bytes([word[6], word[7]])) % (LEN as u64 + 64);
            word.copy_from_slice(&(mr(mark).addr() + offset).to_be_bytes());
        } else {
            for half in word.chunks_exact_mut(4) {
                if let mark @ (0xaa | 0xac) = half[0] {
                    half.copy_from_slice(&mr(mark).lkey().to_be_bytes());
                }
            }
        }
        if is_little {
            word.reverse();
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
    fn drain(&mut self, rig: &mut Rig) {
        while let Some(found) = rig.a.poll_send() {
            match found {
                Reported::Sent { status: Status::Success, .. } => self.succeeded += 1,
                _ => self.failed += 1,
            }
        }
        while rig.b.poll_recv().is_some() {}
        // Of a QP that has failed.
        self.failed += std::iter::from_fn(|| rig.b.poll_send()).count() as u32;
    }
}

/// Panics if the NIC does, does not come to rest, touches what is not registered, or counts other
/// completions than it writes.
pub(crate) fn exercise(input: &[u8]) -> Outcome {
    let mut script = Script(input);
    let [formats, setup] = script.take();
    let all = QueueFormat::ALL;
    let (own, peer) = (usize::from(formats) % all.len(), usize::from(formats) / all.len());
    let policy = match setup % 4 {
        0 => DoorbellPolicy::DoorbellFirst,
        1 => DoorbellPolicy::RecordFirst,
        2 => DoorbellPolicy::Random,
        _ => DoorbellPolicy::DropThenRecover { polls: 2 },
    };
    let nic = Config { policy, seed: Some(1), record_polls: 3, ..Config::default() };
    let (receives, is_apart) = (Receives::Own { log: 5 }, setup & 4 != 0);
    let port = PortConfig { log_sq: 4, log_cq: 4, receives, ..PortConfig::default() };
    let mut rig = Rig::with(all[own], all[peer % all.len()], is_apart, nic, &port);
    let mut outcome = Outcome::default();
    while !script.0.is_empty() {
        command(&mut rig, &mut script, &mut outcome);
    }
    // Longer than all retries of a lost answer; receivers that are never ready are asked for ever.
    rig.run_for(Duration::from_secs(2));
    outcome.drain(&mut rig);
    assert!(rig.is_intact());
    // Counters say what was found.
    let nics = if is_apart { &rig.nics[..] } else { &rig.nics[..1] };
    let stats: Vec<_> = nics.iter().map(SoftNic::stats).collect();
    let (done, written) = stats.iter().fold((0, 0), |(done, written), stats| {
        (done + stats.qps.wqes.total(), written + stats.qps.send_cqes)
    });
    assert!(u64::from(outcome.succeeded) <= done, "{outcome:?} {stats:?}");
    let mut events = nics.iter().flat_map(|nic| std::iter::from_fn(|| nic.poll_event()));
    let overran = events.any(|event| matches!(event, AsyncEvent::CqError { .. }))
        || stats.iter().any(|stats| stats.events_lost > 0);
    let found = u64::from(outcome.succeeded + outcome.failed);
    assert!(found == written || overran, "{outcome:?} {stats:?}");
    let each = 2 / nics.len() as u64;
    for stats in stats {
        assert_eq!((stats.stale_slots, stats.live_qps, stats.live_keys), (0, each, each));
    }
    outcome
}

fn command(rig: &mut Rig, script: &mut Script<'_>, outcome: &mut Outcome) {
    match script.byte() % 10 {
        0 | 1 => {
            let (mut raw, how) = (script.take::<192>(), script.byte());
            if let (true, Some(first)) = (how & 0x80 == 0, raw.first_chunk_mut()) {
                rig.a.place(first, QueueKind::Send);
            }
            let size = usize::from(how & 3);
            let slots = rig.a.format == QueueFormat::BnxtVariable;
            let raw = &mut raw[..if slots { 16 * (2 + size) } else { 64 * (1 + size % 3) }];
            help(raw, rig.a.format.dialect(), [&rig.mr_a, &rig.mr_b]);
            rig.a.put_bytes(raw, u32::from(how >> 2 & 31) * 512);
        }
        2 => {
            let (mut receive, mut raw) = ([0; 128], script.take());
            rig.b.place(&mut raw, QueueKind::Receive);
            help(&mut raw[..48], rig.b.format.dialect(), [&rig.mr_b, &rig.mr_a]);
            receive[..64].copy_from_slice(&raw);
            rig.b.post_recv_bytes(&receive);
        }
        3 => rig.a.record(),
        4 => rig.a.ring_bytes(rig.a.doorbell(rig.a.posted)),
        5 => rig.a.ring_last(),
        6 => rig.a.ring_bytes(script.take()),
        7 => {
            rig.nics.iter().for_each(|nic| {
                nic.step();
            });
            outcome.drain(rig);
        }
        8 => rig.clock.advance(Duration::from_millis(script.byte().into())),
        _ => match script.byte() % 2 {
            0 => rig.b.qp.modify(QpState::Err, &QpAttrs::default()).unwrap(),
            _ => {
                outcome.drain(rig);
                rig.restart();
            }
        },
    }
}
