//! Faults that a test can switch on do what they say, and nothing after they are over.

use std::time::Duration;
use warpverbs_dev::{Pair, PairConfig, bytes, connect, remote};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{Config, Delay, NicError, QpAttrs, Step};

/// Posts a WRITE, or every other time a NOP: one is executed the short way, the other is not.
fn post(pair: &mut Pair) {
    let to = remote(&pair.mr_b, 0);
    pair.a.post_wqe(|buf, at| match at.index.0 % 2 {
        0 => WqeBuilder::write(buf, at, to).inline(b"x").signaled(),
        _ => WqeBuilder::nop(buf, at).signaled(),
    });
}

#[test]
fn cqes_are_delayed_by_steps_in_order() {
    let mut pair = Pair::default();
    pair.nic.faults().delay_cqes(pair.a.send_cq(), Some(Delay::Steps(5)));
    post(&mut pair);
    post(&mut pair);
    pair.nic.step();
    for _ in 0..4 {
        pair.nic.step();
        assert_eq!(pair.a.poll_send(), None);
    }
    pair.nic.faults().delay_cqes(pair.a.send_cq(), None);
    post(&mut pair);
    pair.run();
    assert_eq!(pair.a.sent(), [(0, None), (1, None), (2, None)]);
}

#[test]
fn cqes_are_delayed_by_time() {
    let mut pair = Pair::default();
    let delay = Duration::from_millis(3);
    pair.nic.faults().delay_cqes(pair.a.send_cq(), Some(Delay::Time(delay)));
    post(&mut pair);
    pair.run();
    assert_eq!(pair.nic.next_timer(), Some(delay));
    pair.run_for(delay - Duration::from_nanos(1));
    assert_eq!(pair.a.poll_send(), None);
    pair.run_for(Duration::from_nanos(1));
    assert!(pair.a.poll_send().is_some());
}

#[test]
fn a_held_cqe_frees_the_ring_only_when_it_is_written() {
    let mut pair = Pair::default();
    pair.nic.faults().delay_cqes(pair.a.send_cq(), Some(Delay::Steps(3)));
    for _ in 0..64 {
        post(&mut pair);
    }
    pair.run();
    assert!((0..64).map(|index| (index, None)).eq(pair.a.sent()));
    for _ in 0..64 {
        post(&mut pair);
    }
    assert_eq!(pair.run(), 64);
    assert_eq!(pair.nic.take_violations(), []);
}

#[test]
fn a_lost_doorbell_is_covered_by_the_next() {
    let mut pair = Pair::default();
    pair.nic.faults().lose_doorbells(pair.a.qp.qpn(), 1, None).unwrap();
    post(&mut pair);
    assert_eq!(pair.run(), 0);
    assert_eq!(pair.nic.step(), Step::Idle);
    post(&mut pair);
    assert_eq!(pair.run(), 2);
}

#[test]
fn a_lost_doorbell_is_recovered_from_the_record() {
    let nic = Config { loses_doorbells: true, ..Config::default() };
    let mut pair = Pair::new(PairConfig { nic, ..PairConfig::default() }).unwrap();
    pair.nic.faults().lose_doorbells(pair.a.qp.qpn(), 1, Some(10)).unwrap();
    post(&mut pair);
    assert_eq!(pair.run(), 1);
    assert!(pair.a.poll_send().is_some());
}

#[test]
fn a_record_that_kernels_do_not_order_is_not_read() {
    let pair = Pair::default();
    let lost = pair.nic.faults().lose_doorbells(pair.a.qp.qpn(), 1, Some(10));
    assert_eq!(lost, Err(NicError::RecordNotRead));
}

#[test]
fn a_revoked_key_fails_and_may_come_back() {
    let mut pair = Pair::default();
    let rkey = pair.mr_b.rkey();
    let to = remote(&pair.mr_b, 0);
    pair.nic.faults().revoke(rkey, true).unwrap();
    pair.nic.faults().revoke(rkey, false).unwrap();
    pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(b"ok").signaled());
    pair.run();
    pair.nic.faults().revoke(rkey, true).unwrap();
    pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(b"no"));
    pair.run();
    assert_eq!(pair.a.sent(), [(0, None), (1, Some(Syndrome::RemoteAccess))]);
    assert_eq!(bytes(pair.mr_b.region(), 0, 2), b"ok");
    assert!(matches!(pair.nic.faults().revoke(0x1234, true), Err(NicError::Access(_))));
}

#[test]
fn a_receiver_that_is_not_ready_becomes_so() {
    let mut pair = Pair::default();
    pair.nic.faults().receiver_not_ready(pair.b.qp.qpn(), 2).unwrap();
    pair.b.post_recv(&[]);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).signaled());
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pair.a.sent(), pair.a.qp.stats().rnr_naks), (vec![(0, None)], 2));
}

#[test]
fn a_stuck_qp_waits_and_others_do_not() {
    let mut pair = Pair::default();
    // The first two make the QP know its peer: the short way is open.
    post(&mut pair);
    post(&mut pair);
    assert_eq!(pair.run(), 2);
    pair.mr_b.region().fill(0, 1, 0).unwrap();
    while pair.a.poll_send().is_some() {}
    pair.nic.faults().stick(pair.a.qp.qpn(), true).unwrap();
    post(&mut pair);
    pair.b.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    assert_eq!(pair.run(), 1);
    assert_eq!((pair.a.poll_send(), bytes(pair.mr_b.region(), 0, 1)), (None, vec![0]));
    pair.nic.faults().stick(pair.a.qp.qpn(), false).unwrap();
    assert_eq!(pair.run(), 1);
    assert!(pair.a.poll_send().is_some());
}

#[test]
fn faults_of_unknown_qps_are_refused() {
    let pair = Pair::default();
    let refused = pair.nic.faults().stick(0xabcdef, true);
    assert_eq!(refused, Err(NicError::UnknownQp { qpn: 0xabcdef }));
}

#[test]
fn a_held_cqe_of_a_qp_that_was_reset_is_never_written() {
    let mut pair = Pair::default();
    pair.nic.faults().delay_cqes(pair.a.send_cq(), Some(Delay::Steps(5)));
    for _ in 0..3 {
        post(&mut pair);
    }
    pair.nic.step();
    pair.a.reset();
    connect(&pair.a, pair.b.qp.qpn(), QpAttrs::default());
    pair.run();
    assert_eq!(pair.a.poll_send(), None);
    // The ring is as free as that of a new QP: all of it, and no more.
    for _ in 0..64 {
        pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    }
    assert_eq!(pair.run(), 64);
    assert_eq!(pair.nic.take_violations(), []);
}
