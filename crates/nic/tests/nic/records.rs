//! QPs whose doorbell record alone makes work known.

use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::testing::{Pair, PairConfig, PortConfig, bytes, connect, remote};
use warpverbs_nic::{Announcement, Config, QpAttrs, QpState, Rule, Step};

fn pair(log_sq: u8) -> Pair {
    let announcement = Announcement::Record;
    let a = PortConfig { announcement, log_sq, ..PortConfig::default() };
    let nic = Config { watch_rewrites: true, ..Config::default() };
    Pair::new(PairConfig { nic, a, ..PairConfig::default() }).unwrap()
}

/// Posts a signalled inline WRITE of `payload` to `offset`.
fn write(pair: &mut Pair, offset: u64, payload: &[u8]) {
    let to = remote(&pair.mr_b, offset);
    pair.a
        .put(|buf, at| {
            let wqe = WqeBuilder::write(buf, at, to).inline(payload);
            wqe.signaled().finish().map(<[u8]>::len)
        })
        .unwrap();
}

/// Both QPs from RESET to RTS, towards each other.
fn reconnect(pair: &Pair) {
    connect(&pair.a, pair.b.qp.qpn(), QpAttrs::default());
    connect(&pair.b, pair.a.qp.qpn(), QpAttrs::default());
}

#[test]
fn work_is_found_without_a_doorbell_and_indexes_wrap() {
    let mut pair = pair(4);
    let mut round = 0u64;
    while pair.a.posted < 70_000 {
        // One to three WQEs become known by one store of the record.
        let count = round % 3 + 1;
        let payload = |i| vec![(round * 7 + i) as u8; 200];
        for i in 0..count {
            write(&mut pair, i * 512, &payload(i));
        }
        assert_eq!(pair.nic.step(), Step::Idle, "nothing is known yet");
        pair.a.record();
        pair.run();
        for i in 0..count {
            assert!(matches!(pair.a.poll_send(), Some(Cqe::Requester { .. })), "round {round}");
            assert_eq!(bytes(pair.mr_b.region(), i * 512, 200), payload(i));
        }
        assert_eq!(pair.a.poll_send(), None);
        round += 1;
    }
    assert!(pair.nic.take_violations().is_empty());
}

#[test]
fn what_was_posted_before_ready_to_send_is_executed_then() {
    let mut pair = pair(4);
    pair.a.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    pair.b.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    write(&mut pair, 0, &[1; 64]);
    pair.a.record();
    pair.run();
    reconnect(&pair);
    pair.run();
    assert!(matches!(pair.a.poll_send(), Some(Cqe::Requester { .. })));
    assert_eq!(bytes(pair.mr_b.region(), 0, 64), [1; 64]);
    assert!(pair.nic.take_violations().is_empty());
}

#[test]
fn a_record_that_announces_the_impossible_is_reported_once() {
    let mut pair = pair(4);
    pair.a.posted += 17;
    pair.a.record();
    pair.run();
    for _ in 0..100 {
        pair.nic.step();
    }
    let found: Vec<Rule> = pair.nic.take_violations().iter().map(|v| v.rule).collect();
    let expected = Rule::BeyondRing { posted: 17, outstanding: 17, depth: 16 };
    assert_eq!(found, [expected]);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    // After RESET it works again.
    pair.a.posted = 0;
    pair.a.record();
    pair.a.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    pair.b.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    reconnect(&pair);
    while pair.a.poll_send().is_some() {}
    write(&mut pair, 0, &[2; 64]);
    pair.a.record();
    pair.run();
    assert!(matches!(pair.a.poll_send(), Some(Cqe::Requester { .. })));
}

#[test]
fn a_qp_that_is_gone_is_not_looked_at() {
    let mut pair = pair(4);
    let other = self::pair(4);
    drop(other);
    write(&mut pair, 0, &[3; 64]);
    pair.a.record();
    let Pair { nic, a, .. } = pair;
    drop(a);
    assert_eq!(nic.step(), Step::Idle);
    assert_eq!(nic.stats().stale_slots, 0);
}
