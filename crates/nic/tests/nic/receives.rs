//! Receiver not ready, shared receive queues, and receives in odd numbers.

use std::sync::atomic::Ordering;
use std::time::Duration;
use warpverbs_dev::{Pair, PairConfig, Port, PortConfig, Receives, bytes, connect, sge};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::record_word;
use warpverbs_mlx5::recv::build_srq;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{
    AsyncEvent, QpAttrs, QpState, QueueKind, Rule, Srq, SrqConfig, SrqOrder, rnr_delay,
};

fn rnr(retries: u8) -> Pair {
    let attrs = QpAttrs { rnr_retry: Some(retries), min_rnr_timer: Some(14), ..QpAttrs::default() };
    Pair::new(PairConfig { attrs, ..PairConfig::default() }).unwrap()
}

#[test]
fn a_late_receive_is_found_by_a_retry() {
    let mut pair = rnr(3);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"late").signaled());
    pair.run();
    pair.b.post_recv(&[sge(&pair.mr_b, 0, 8)]);
    pair.run_for(rnr_delay(14) - Duration::from_nanos(1));
    assert_eq!(pair.b.poll_recv(), None, "the timer has not run out");
    pair.run_for(Duration::from_nanos(1));
    assert!(matches!(pair.b.poll_recv(), Some(Cqe::Receive { byte_cnt: 4, .. })));
    assert_eq!(pair.a.sent(), [(0, None)]);
    assert_eq!(pair.a.qp.stats().rnr_naks, 1);
}

#[test]
fn retries_end() {
    for retries in [0, 1, 6] {
        let mut pair = rnr(retries);
        pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at));
        pair.run_for(rnr_delay(14) * u32::from(retries));
        assert_eq!(pair.a.sent(), [(0, Some(Syndrome::RnrRetryExc))]);
        assert_eq!(pair.a.qp.stats().rnr_naks, u64::from(retries) + 1);
        assert_eq!(pair.b.qp.state(), QpState::Rts, "the receiver is well");
    }
}

#[test]
fn seven_retries_are_for_ever() {
    let mut pair = rnr(7);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).signaled());
    pair.run_for(rnr_delay(14) * 1000);
    assert_eq!(pair.a.sent(), []);
    pair.b.post_recv(&[]);
    pair.run_for(rnr_delay(14));
    assert_eq!(pair.a.sent(), [(0, None)]);
}

#[test]
fn other_qps_do_not_wait_for_a_receiver() {
    let mut pair = rnr(7);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at));
    pair.b.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.run();
    assert_eq!(pair.b.sent(), [(0, None)]);
}

#[test]
fn receive_counters_beyond_the_ring_are_refused() {
    let mut pair = rnr(7);
    for _ in 0..65 {
        pair.b.post_recv(&[]);
    }
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at));
    pair.run();
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::RemoteOp))]);
    let first = pair.nic.take_violations()[0];
    let rule = Rule::ReceivesBeyondRing { posted: 65, outstanding: 65, depth: 64 };
    assert_eq!((first.queue, first.rule), (QueueKind::Receive, rule));
}

/// An SRQ of eight WQEs of 64 bytes, and its memory.
struct TestSrq {
    srq: Srq,
    buf: Region,
    dbr: Region,
    posted: u64,
}

fn srq(pair: &Pair, order: SrqOrder) -> TestSrq {
    let (buf, dbr) = (HostBuf::region(512).unwrap(), HostBuf::region(64).unwrap());
    let config = SrqConfig {
        dialect: warpverbs_nic::Dialect::Mlx5,
        order,
        buf: buf.clone(),
        log_size: 3,
        log_stride: 6,
        dbr: dbr.clone(),
    };
    TestSrq { srq: pair.nic.create_srq(&pair.pd, &config).unwrap(), buf, dbr, posted: 0 }
}

impl TestSrq {
    /// Puts WQE `number`, linked to `next`, with `offset` of `b`'s buffer as its 8 bytes.
    fn post(&mut self, pair: &Pair, number: u16, next: u16, offset: u64) {
        let mut slot = [0; 64];
        build_srq(&mut slot, next, &[sge(&pair.mr_b, offset, 8)]).unwrap();
        self.buf.write(u64::from(number) * 64, &slot).unwrap();
        self.posted += 1;
        let word = self.dbr.atomic_u32(0).unwrap();
        word.store(record_word(self.posted), Ordering::Release);
    }
}

/// `pair.a`, connected to a new port with the SRQ in the place of `pair.b`.
fn port_at_a(pair: &mut Pair, srq: &TestSrq) -> Port {
    let port = port_on(pair, srq);
    connect(&port, pair.a.qp.qpn(), QpAttrs::default());
    pair.a.reset();
    connect(&pair.a, port.qp.qpn(), QpAttrs::default());
    port
}

fn port_on(pair: &Pair, srq: &TestSrq) -> Port {
    let config =
        PortConfig { receives: Receives::Shared(srq.srq.clone()), ..PortConfig::default() };
    Port::new(&pair.nic, &pair.pd, &config).unwrap()
}

#[test]
fn an_srq_is_taken_in_the_order_of_its_links() {
    let mut pair = rnr(7);
    let mut shared = srq(&pair, SrqOrder::Linked);
    let order = [0, 5, 2, 7];
    for (i, pair_of) in order.windows(2).enumerate() {
        shared.post(&pair, pair_of[0], pair_of[1], i as u64 * 8);
    }
    let (mut left, mut right) = (port_at_a(&mut pair, &shared), port_on(&pair, &shared));
    connect(&right, pair.b.qp.qpn(), QpAttrs::default());
    pair.b.reset();
    connect(&pair.b, right.qp.qpn(), QpAttrs::default());
    shared.srq.set_limit(2);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"one"));
    pair.run();
    assert_eq!(pair.nic.poll_event(), None, "two are left");
    pair.b.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"two"));
    pair.run();
    let limit = AsyncEvent::SrqLimit { srqn: shared.srq.srqn() };
    assert_eq!((pair.nic.poll_event(), pair.nic.poll_event()), (Some(limit), None));
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"three"));
    pair.run();
    let mut taken = Vec::new();
    for first in [true, false, true] {
        let port = if first { &mut left } else { &mut right };
        let Some(Cqe::Receive { wqe_counter, srqn, .. }) = port.poll_recv() else {
            panic!("nothing received")
        };
        assert_eq!(srqn, shared.srq.srqn());
        taken.push(wqe_counter);
    }
    assert_eq!(taken, [0, 5, 2]);
    assert_eq!(bytes(pair.mr_b.region(), 0, 24), b"one\0\0\0\0\0two\0\0\0\0\0three\0\0\0");
    // The fourth finds none, until one is posted.
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"four"));
    pair.run();
    shared.post(&pair, 7, 0, 24);
    pair.run_for(Duration::from_secs(1));
    assert!(matches!(left.poll_recv(), Some(Cqe::Receive { wqe_counter: 7, .. })));
}

#[test]
fn an_srq_may_be_a_ring() {
    let mut pair = rnr(7);
    let mut shared = srq(&pair, SrqOrder::Ring);
    let mut left = port_at_a(&mut pair, &shared);
    // Once around and on; links lead nowhere.
    for round in 0..11u16 {
        shared.post(&pair, round % 8, 0xffff, 0);
        pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"ring"));
        pair.run();
        assert_eq!(left.received(), [(round % 8, None)]);
    }
}

#[test]
fn a_broken_srq_link_ends_the_srq() {
    let mut pair = rnr(7);
    let mut shared = srq(&pair, SrqOrder::Linked);
    shared.post(&pair, 0, 8, 0);
    let left = port_at_a(&mut pair, &shared);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at));
    pair.run();
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::RemoteOp))]);
    let events: Vec<_> = std::iter::from_fn(|| pair.nic.poll_event()).collect();
    assert!(events.contains(&AsyncEvent::SrqError { srqn: shared.srq.srqn() }), "{events:?}");
    assert!(events.contains(&AsyncEvent::LastWqeReached { qpn: left.qp.qpn() }), "{events:?}");
    let first = pair.nic.take_violations()[0];
    let rule = Rule::SrqLink { found: 8, depth: 8 };
    assert_eq!((first.queue, first.rule), (QueueKind::Shared, rule));
}

#[test]
fn a_reset_mends_a_receive_queue_whose_counter_made_no_sense() {
    let mut pair = rnr(7);
    pair.b.dbr.atomic_u32(0).unwrap().store(record_word(65), Ordering::Release);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at));
    pair.run();
    assert_eq!(pair.b.qp.state(), QpState::Err);
    let said = pair.nic.take_violations();
    pair.run();
    assert_eq!(pair.nic.take_violations(), [], "said before: {said:?}");
    pair.restart();
    pair.a.sent();
    pair.b.post_recv(&[]);
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).signaled());
    pair.run();
    assert_eq!((pair.b.received(), pair.a.sent()), (vec![(0, None)], vec![(0, None)]));
}
