//! Rings, indexes, doorbells and CQs: wrap, both doorbell dialects, every policy, and what a
//! poster can do wrong with them.

use proptest::prelude::*;
use warpverbs_dev::{Pair, PairConfig, Port, PortConfig, bytes, connect, local, remote, sge};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::Doorbell;
use warpverbs_mlx5::num::{Qpn, WqeIndex};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{
    AsyncEvent, Config, CqMode, DoorbellPolicy, QpAttrs, QpState, Rule, Status, Step, Violation,
};

fn with(nic: Config, log_sq: u8) -> Pair {
    let a = PortConfig { log_sq, ..PortConfig::default() };
    Pair::new(PairConfig { nic, a, ..PairConfig::default() }).unwrap()
}

fn rule(pair: &Pair) -> Option<Rule> {
    let found = pair.nic.take_violations();
    assert!(found.len() <= 1, "{found:?}");
    found.first().map(|violation| violation.rule)
}

const POLICIES: [DoorbellPolicy; 5] = [
    DoorbellPolicy::DoorbellFirst,
    DoorbellPolicy::RecordFirst,
    DoorbellPolicy::Random,
    DoorbellPolicy::DropThenRecover { polls: 0 },
    DoorbellPolicy::DropThenRecover { polls: 3 },
];

#[test]
fn long_wqes_cross_the_ring_end_and_indexes_wrap() {
    // 16 slots; 2- and 5-WQEBB WQEs cross the end at every place, and 70000 WQEBBs wrap 2^16.
    for policy in POLICIES {
        let nic = Config { policy, seed: Some(1), ..Config::default() };
        let mut pair = with(nic, 4);
        let mut round = 0u64;
        while pair.a.posted < 70_000 {
            let payload = vec![round as u8; if round.is_multiple_of(3) { 80 } else { 260 }];
            let to = remote(&pair.mr_b, (round % 5) * 512);
            let index = pair
                .a
                .put_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(&payload).signaled());
            pair.a.record();
            if round.is_multiple_of(2) {
                pair.a.ring()
            } else {
                pair.a.ring_last()
            }
            pair.run();
            assert_eq!(pair.a.sent(), [(index as u16, None)], "{policy:?}: {:?}", rule(&pair));
            assert_eq!(bytes(pair.mr_b.region(), (round % 5) * 512, payload.len()), payload);
            round += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Batches of any size, rung or not, in either dialect, under every policy: each WQE is
    /// executed once and in order.
    #[test]
    fn every_policy_executes_everything_once(
        policy in 0..POLICIES.len(),
        seed: u64,
        batches in prop::collection::vec((1usize..8, any::<bool>(), 0u32..3), 1..80),
    ) {
        let policy = POLICIES[policy];
        let nic = Config { policy, seed: Some(seed), ..Config::default() };
        let mut pair = with(nic, 4);
        let (word, back) = (remote(&pair.mr_b, 0), local(&pair.mr_a, 0));
        let (mut posted, mut seen) = (0u64, 0u64);
        for (count, last_dialect, steps) in batches {
            while posted + count as u64 - seen > 16 {
                pair.run();
                for sent in pair.a.sent() {
                    prop_assert_eq!(sent, (seen as u16, None));
                    seen += 1;
                }
            }
            for _ in 0..count {
                pair.a.put_wqe(|buf, at| WqeBuilder::fetch_add(buf, at, word, 1, back).signaled());
            }
            posted += count as u64;
            pair.a.record();
            if last_dialect { pair.a.ring_last() } else { pair.a.ring() }
            for _ in 0..steps {
                pair.nic.step();
            }
        }
        pair.run();
        let total = bytes(pair.mr_b.region(), 0, 8);
        prop_assert_eq!(total, posted.to_le_bytes());
        prop_assert_eq!(pair.nic.take_violations(), vec![]);
    }
}

#[test]
fn a_doorbell_ahead_of_its_record_waits_for_it() {
    let nic = Config { policy: DoorbellPolicy::RecordFirst, ..Config::default() };
    let mut pair = with(nic, 4);
    pair.a.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.a.ring();
    for _ in 0..10 {
        pair.nic.step();
    }
    assert_eq!(pair.a.poll_send(), None);
    pair.a.record();
    pair.run();
    assert!(pair.a.poll_send().is_some());
    assert_eq!(rule(&pair), None);
}

#[test]
fn a_record_that_never_comes_is_reported() {
    let nic = Config { policy: DoorbellPolicy::RecordFirst, record_polls: 5, ..Config::default() };
    let mut pair = with(nic, 4);
    pair.a.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.a.ring();
    pair.run();
    assert_eq!(rule(&pair), Some(Rule::RecordBehindDoorbell { record: 0, doorbell: 1 }));
}

#[test]
fn a_doorbell_without_a_record_is_enough_for_the_fast_way() {
    let mut pair = with(Config::default(), 4);
    pair.a.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.a.ring();
    pair.run();
    assert!(pair.a.poll_send().is_some());
}

/// A poster writes the record first, so that whoever reads it may be ahead of doorbells still to come.
#[test]
fn a_doorbell_older_than_the_record_that_was_believed_is_no_step_back() {
    for seed in 0..32 {
        let policy = DoorbellPolicy::Random;
        let mut pair = with(Config { policy, seed: Some(seed), ..Config::default() }, 4);
        for _ in 0..3 {
            pair.a.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
        }
        pair.a.record();
        for next in 1..=3 {
            pair.a.ring_at(next);
            pair.run();
        }
        assert_eq!(rule(&pair), None, "seed {seed}");
        assert_eq!(pair.a.sent(), [(0, None), (1, None), (2, None)], "seed {seed}");
    }
}

#[test]
fn bad_doorbells_are_named_and_not_believed() {
    let mut pair = with(Config::default(), 4);
    let qpn = pair.a.position().qpn;
    for _ in 0..3 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    }
    pair.run();
    pair.a.ring_at(2);
    pair.run();
    assert_eq!(rule(&pair), Some(Rule::Backward { found: 2, expected: 3 }));
    let other = Doorbell::Next { qpn: Qpn::new(0x123).unwrap(), next: WqeIndex(4) };
    pair.a.ring_bytes(other.bytes());
    pair.run();
    assert_eq!(rule(&pair), Some(Rule::DoorbellQpn { found: 0x123, expected: qpn.get() }));
    pair.nic.doorbells().write(64, &[1; 8]).unwrap();
    pair.run();
    assert_eq!(rule(&pair), None, "no QP ever had this doorbell");
    assert_eq!(pair.a.qp.state(), QpState::Rts);
}

#[test]
fn the_doorbell_of_a_qp_that_is_gone_is_noticed() {
    let mut pair = with(Config::default(), 4);
    let port = warpverbs_dev::Port::new(&pair.nic, &pair.pd, &PortConfig::default()).unwrap();
    let offset = port.qp.doorbell_offset();
    drop(port);
    pair.nic.doorbells().write(offset, &7u64.to_le_bytes()).unwrap();
    pair.run();
    let slot = (offset / 8) as u32;
    assert_eq!(rule(&pair), Some(Rule::DoorbellUnowned { slot, value: 7 }));
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at));
    assert_eq!(pair.run(), 1);
}

#[test]
fn doorbells_before_rts_are_named() {
    let mut pair = with(Config::default(), 4);
    pair.a.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at));
    pair.run();
    assert_eq!(rule(&pair), Some(Rule::DoorbellState { state: QpState::Reset }));
}

#[test]
fn more_than_the_ring_is_an_error() {
    let mut pair = with(Config::default(), 4);
    for _ in 0..17 {
        pair.a.put_wqe(|buf, at| WqeBuilder::nop(buf, at));
    }
    pair.a.ring();
    pair.run();
    assert_eq!(rule(&pair), Some(Rule::BeyondRing { posted: 17, outstanding: 17, depth: 16 }));
    let mut sent = pair.a.sent();
    assert_eq!(sent.remove(0), (0, Some(Syndrome::LocalQpOp)));
    let flushed = (1..16).map(|index| (index, Some(Syndrome::WrFlush)));
    assert!(flushed.eq(sent));
}

#[test]
fn unsignalled_work_does_not_free_the_ring() {
    let mut pair = with(Config::default(), 4);
    for _ in 0..16 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at));
    }
    assert_eq!(pair.run(), 16);
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at));
    pair.run();
    // No CQE has freed a slot for the poster.
    assert_eq!(rule(&pair), Some(Rule::BeyondRing { posted: 17, outstanding: 17, depth: 16 }));
}

#[test]
fn stale_and_unwritten_slots_are_distinguished() {
    let ahead = |pair: &Pair| {
        pair.a.ring_at(pair.a.posted + 1);
        pair.run();
    };
    let pair = with(Config::default(), 2);
    ahead(&pair);
    assert_eq!(rule(&pair), Some(Rule::NeverWritten { fill: 0 }));
    let mut pair = with(Config::default(), 2);
    for _ in 0..6 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
        pair.run();
        pair.a.poll_send().unwrap();
    }
    ahead(&pair);
    assert_eq!(rule(&pair), Some(Rule::StaleSlot { found: 2, expected: 6, laps: 1 }));
    assert_eq!(pair.a.sent(), [(6, Some(Syndrome::LocalQpOp))]);
}

#[test]
fn a_wqe_longer_than_what_was_announced_is_an_error() {
    let mut pair = with(Config::default(), 4);
    let to = remote(&pair.mr_b, 0);
    pair.a.put_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(&[1; 80]));
    pair.a.ring_at(1);
    pair.run();
    assert_eq!(rule(&pair), Some(Rule::BeyondAnnounced { wqebbs: 2, announced: 1 }));
    assert_eq!(bytes(pair.mr_b.region(), 0, 1), [0]);
}

#[test]
fn a_rewritten_slot_is_noticed() {
    let nic = Config { watch_rewrites: true, ..Config::default() };
    let mut pair = with(nic, 4);
    pair.nic.faults().stick(pair.a.qp.qpn(), true).unwrap();
    let to = remote(&pair.mr_b, 0);
    let index = pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(b"was"));
    pair.run();
    pair.a.sq.write(index * 64 + 36, b"now").unwrap();
    pair.nic.faults().stick(pair.a.qp.qpn(), false).unwrap();
    pair.run();
    let found = rule(&pair);
    assert!(matches!(found, Some(Rule::Rewritten { word: 4, .. })), "{found:?}");
    assert_eq!(bytes(pair.mr_b.region(), 0, 3), b"now", "hardware would not notice");
    pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(b"new").signaled());
    pair.run();
    assert_eq!(rule(&pair), None);
}

#[test]
fn every_wqe_beyond_the_ring_has_one_cqe() {
    let mut pair = with(Config::default(), 2);
    for _ in 0..4 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at));
    }
    pair.run();
    assert_eq!(pair.a.sent(), [], "unsignalled, so the ring counts as full");
    for _ in 0..2 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
        pair.run();
    }
    let expected = [(4, Some(Syndrome::LocalQpOp)), (5, Some(Syndrome::WrFlush))];
    assert_eq!(pair.a.sent(), expected);
}

#[test]
fn a_full_cq_is_fatal() {
    let a = PortConfig { log_cq: 2, ..PortConfig::default() };
    let mut pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
    for _ in 0..5 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    }
    pair.run();
    let overrun = AsyncEvent::CqError { cqn: pair.a.send_cq().cqn() };
    assert_eq!(pair.nic.poll_event(), Some(overrun));
    let (qpn, status) = (pair.a.qp.qpn(), Status::LocalQpOperation);
    assert_eq!(pair.nic.poll_event(), Some(AsyncEvent::QpFatal { qpn, status }));
    assert_eq!(pair.nic.poll_event(), None);
    assert_eq!((pair.a.qp.state(), pair.b.qp.state()), (QpState::Err, QpState::Rts));
    assert_eq!(pair.a.sent().len(), 4);
}

#[test]
fn a_consumed_cq_goes_round() {
    let a = PortConfig { log_cq: 2, ..PortConfig::default() };
    let mut pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
    for i in 0..1000 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
        if i % 4 == 3 {
            pair.run();
            assert_eq!(pair.a.sent().len(), 4);
        }
    }
    assert_eq!(pair.nic.poll_event(), None);
}

#[test]
fn sqd_holds_work_back() {
    for consume_only in [false, true] {
        let a = PortConfig { consume_only, ..PortConfig::default() };
        let mut pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
        let none = QpAttrs::default();
        pair.a.qp.modify(QpState::Sqd, &none).unwrap();
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
        pair.run();
        assert_eq!(pair.nic.poll_event(), Some(AsyncEvent::SqDrained { qpn: pair.a.qp.qpn() }));
        assert_eq!(pair.a.sent(), []);
        pair.a.qp.modify(QpState::Rts, &none).unwrap();
        pair.run();
        assert_eq!(pair.a.sent(), [(0, None)]);
    }
}

#[test]
fn a_consume_only_qp_completes_what_is_announced_unread() {
    let a = PortConfig {
        consume_only: true,
        cq_mode: CqMode::Collapsed,
        log_sq: 7,
        ..PortConfig::default()
    };
    let mut pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
    for round in 1..=600u64 {
        pair.a.put_bytes(&[0xa5; 64 * 128]);
        pair.a.ring();
        pair.run();
        let Cqe::Requester { wqe_counter, .. } = Cqe::parse(&pair.a.collapsed()).unwrap() else {
            panic!("an error")
        };
        assert_eq!(wqe_counter, (round * 128 - 1) as u16);
    }
    pair.a.put_bytes(&[0; 64 * 129]);
    pair.a.ring();
    pair.run();
    assert!(matches!(rule(&pair), Some(Rule::BeyondRing { outstanding: 129, .. })));
}

#[test]
fn violations_are_bounded_counted_and_sent() {
    let nic = Config { violations_kept: 3, ..Config::default() };
    let pair = with(nic, 4);
    let received = pair.nic.subscribe(100);
    for next in 0..10 {
        pair.a.ring_at(0xff00 + next);
        pair.run();
    }
    let kept: Vec<Violation> = pair.nic.take_violations();
    assert_eq!(kept.len(), 3);
    assert_eq!(kept[2].rule, Rule::Backward { found: 0xff09, expected: 0 });
    assert_eq!(pair.nic.violation_counts()["doorbell.index"], 10);
    assert_eq!((received.try_iter().count(), pair.nic.stats().violations), (10, 10));
    assert!(kept[0].to_string().contains("producer index 0xff07 is before 0x0000"), "{}", kept[0]);
}

#[test]
fn the_overrun_of_a_cq_that_is_gone_does_not_end_qps_of_the_next() {
    let mut pair = with(Config::default(), 4);
    let config = PortConfig { log_cq: 1, ..PortConfig::default() };
    let mut full = Port::new(&pair.nic, &pair.pd, &config).unwrap();
    connect(&full, pair.b.qp.qpn(), QpAttrs::default());
    for _ in 0..3 {
        full.post_recv(&[]);
    }
    // Three flushes into a CQ of two, found by a control call.
    full.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    let cqns = [full.send_cq().cqn(), full.recv_cq().cqn()];
    drop(full);
    let next = Port::new(&pair.nic, &pair.pd, &config).unwrap();
    assert_eq!([next.send_cq().cqn(), next.recv_cq().cqn()], cqns, "the same places");
    connect(&next, pair.b.qp.qpn(), QpAttrs::default());
    pair.run();
    assert_eq!(next.qp.state(), QpState::Rts);
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.run();
    assert!(pair.a.poll_send().is_some());
}

#[test]
fn a_turn_ends_after_the_bytes_of_a_slice() {
    let mut pair = with(Config { slice_bytes: 4096, ..Config::default() }, 4);
    let (from, to) = (sge(&pair.mr_a, 0, 4096), remote(&pair.mr_b, 0));
    for _ in 0..16 {
        pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
    }
    for _ in 0..3 {
        pair.b.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
        assert_eq!(pair.nic.step(), Step::Busy(2), "one long WRITE, and the other QP");
        assert!(pair.b.poll_send().is_some());
    }
    assert_eq!(pair.run(), 13);
}
