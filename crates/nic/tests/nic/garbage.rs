//! Any bytes in any queue: success or a typed violation, never a panic, a hang, or a touch outside
//! of registered memory.

use crate::corpus::exercise::{GUARD, Guarded, PAGE};
use proptest::prelude::*;
use std::ops::{Range, RangeInclusive};
use warpverbs_dev::{Pair, PairConfig, PortConfig, bytes, local, remote, sge};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{Config, Mr, QpState};

/// A WQE that is right but for what is then done to it.
fn good(
    kind: u8,
    from: &Mr,
    to: &Mr,
    offset: u64,
    len: u32,
    buf: &mut [u8],
    at: warpverbs_mlx5::wqe::Position,
) -> usize {
    let (there, here, word) = (remote(to, offset), sge(from, offset, len.max(1)), local(from, 0));
    let wqe = match kind % 8 {
        0 => WqeBuilder::write(buf, at, there).sge(here),
        1 => WqeBuilder::read(buf, at, there).sge(here).sge(here),
        2 => WqeBuilder::send(buf, at).sge(here),
        3 => WqeBuilder::write_imm(buf, at, there, 7).inline(&[7; 70]),
        4 => WqeBuilder::fetch_add(buf, at, there, 1, word),
        5 => WqeBuilder::compare_swap(buf, at, there, 1, 2, word),
        6 => WqeBuilder::send_inval(buf, at, there.rkey).inline(&[1; 20]),
        _ => WqeBuilder::local_inval(buf, at, there.rkey),
    };
    wqe.signaled().finish().unwrap().len()
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Bytes that nobody meant.
    Noise(Vec<u8>),
    /// A right WQE, with some bytes changed.
    Changed { kind: u8, offset: u64, len: u32, changes: Vec<(usize, u8)> },
}

/// So many bytes of noise; or a WQE of these offsets and lengths, in whose first bytes some are changed.
pub(crate) fn input(
    noise: RangeInclusive<usize>,
    offset: Range<u64>,
    len: Range<u32>,
    first: usize,
) -> impl Strategy<Value = Input> {
    let changes = prop::collection::vec((0..first, any::<u8>()), 0..4);
    let changed = (any::<u8>(), offset, len, changes);
    prop_oneof![
        prop::collection::vec(any::<u8>(), noise).prop_map(Input::Noise),
        changed.prop_map(|(kind, offset, len, changes)| Input::Changed {
            kind,
            offset,
            len,
            changes
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_wqe_is_executed_or_named(inputs in prop::collection::vec((input(64..=256, 0..8192, 0..8192, 128), any::<[u8; 64]>(), any::<bool>()), 1..12)) {
        let a = PortConfig { log_sq: 4, ..PortConfig::default() };
        let nic = Config { seed: Some(3), ..Config::default() };
        let mut pair = Pair::new(PairConfig { nic, a, ..PairConfig::default() }).unwrap();
        let (from, to) = (Guarded::new(&pair), Guarded::new(&pair));
        for (input, receive, receive_is_good) in inputs {
            if receive_is_good {
                pair.b.post_recv(&[sge(&to.mr, 0, PAGE as u32)]);
            } else {
                pair.b.post_recv_bytes(&receive);
            }
            let before = pair.nic.stats().violations;
            match input {
                Input::Noise(noise) => {
                    let whole = noise.len() / 64 * 64;
                    pair.a.put_bytes(&noise[..whole]);
                }
                Input::Changed { kind, offset, len, changes } => {
                    let mut buf = [0; 1024];
                    let size = good(kind, &from.mr, &to.mr, offset, len, &mut buf, pair.a.position());
                    for (at, byte) in changes {
                        buf[at % size] ^= byte;
                    }
                    pair.a.put_bytes(&buf[..size]);
                }
            }
            pair.a.announce();
            pair.run_for(std::time::Duration::from_secs(2));
            let mut failed = false;
            while let Some(cqe) = pair.a.poll_send() {
                failed |= matches!(cqe, Cqe::Error { .. });
            }
            while pair.b.poll_recv().is_some() {}
            let state = pair.a.qp.state();
            prop_assert_eq!(failed, state == QpState::Err);
            prop_assert!(!failed || pair.nic.stats().violations > before, "an error without a violation");
            prop_assert!(from.is_intact() && to.is_intact());
            if failed || pair.b.qp.state() != QpState::Rts {
                pair.restart();
            }
        }
    }

    /// Any doorbell values and records, over rings that nobody has written: errors, each with a CQE
    /// and a violation, and nothing is executed.
    #[test]
    fn any_doorbell_executes_nothing(rings in prop::collection::vec((any::<[u8; 8]>(), any::<[u8; 8]>(), any::<bool>()), 1..40), policy in 0u8..3) {
        use warpverbs_nic::DoorbellPolicy::{DoorbellFirst, DropThenRecover, RecordFirst};
        let policy = [DoorbellFirst, RecordFirst, DropThenRecover { polls: 2 }][usize::from(policy)];
        let nic = Config { policy, record_polls: 3, ..Config::default() };
        let a = PortConfig { log_cq: 10, ..PortConfig::default() };
        let mut pair = Pair::new(PairConfig { nic, a, ..PairConfig::default() }).unwrap();
        let buffers = [pair.mr_a.clone(), pair.mr_b.clone()];
        for buffer in &buffers {
            buffer.region().fill(0, buffer.region().len(), GUARD).unwrap();
        }
        let qpn = pair.a.qp.qpn().to_be_bytes();
        let mut cqes = 0;
        for (mut bell, record, own) in rings {
            if own {
                bell[4..7].copy_from_slice(&qpn[1..]);
            }
            pair.a.dbr.write(0, &record).unwrap();
            pair.a.ring_bytes(bell);
            pair.run();
            while let Some(cqe) = pair.a.poll_send() {
                prop_assert!(matches!(cqe, Cqe::Error { .. }), "{cqe:?}");
                cqes += 1;
            }
            while pair.a.poll_recv().is_some() {}
            if pair.a.qp.state() == QpState::Err {
                pair.restart();
            }
        }
        let stats = pair.nic.stats();
        prop_assert_eq!((stats.qps.wqes.total(), stats.qps.bytes, stats.stale_slots), (0, 0, 0));
        prop_assert_eq!(stats.qps.send_cqes, cqes, "every CQE that is counted was found");
        prop_assert!(stats.violations >= stats.qps.errors);
        for buffer in &buffers {
            let len = buffer.region().len();
            prop_assert!(bytes(buffer.region(), 0, len).iter().all(|byte| *byte == GUARD));
        }
    }
}
