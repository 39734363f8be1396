//! Memory that only a copy engine reaches: the engine never waits for it, completions stay in
//! order, and other QPs go on.

use std::sync::Arc;
use std::time::Duration;
use warpverbs_dev::{Device, Pair, bytes, connect, local, remote, rest, sge};
use warpverbs_mem::Region;
use warpverbs_mem::testing::LazyCopier;
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{Mr, QpAttrs, QpState, Step};

const FLUSH: Option<Syndrome> = Some(Syndrome::WrFlush);

/// A pair, and a buffer of 4 KiB on a device: its key, its bytes, its engine.
struct Rig {
    pair: Pair,
    mr: Mr,
    view: Region,
    copier: Arc<LazyCopier>,
}

fn device(pair: &Pair, number: u32) -> Device {
    Device::new(&pair.nic, &pair.pd, 4096, number)
}

fn rig() -> Rig {
    let pair = Pair::default();
    let Device { mr, view, copier } = device(&pair, 0);
    Rig { pair, mr, view, copier }
}

/// Some steps: more than enough for all that can go on without copies.
fn steps(pair: &Pair) {
    for _ in 0..20 {
        assert_ne!(pair.nic.step(), Step::Idle, "copies are under way");
    }
}

#[test]
fn writes_queue_up_behind_the_copy_engine_and_complete_in_order() {
    let mut rig = rig();
    for i in 0..4u8 {
        let (to, data) = (remote(&rig.mr, u64::from(i) * 4), [i + 1; 4]);
        rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(&data).signaled());
    }
    steps(&rig.pair);
    assert_eq!((rig.copier.waiting(), rig.pair.a.poll_send()), (4, None));
    // The slots may be reused by then only if they were completed; the payload was copied.
    rig.pair.a.sq.fill(0, 4096, 0xee).unwrap();
    rig.pair.b.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    steps(&rig.pair);
    assert!(rig.pair.b.poll_send().is_some(), "other QPs go on");
    for index in 0..4 {
        rig.copier.allow(1);
        rig.pair.nic.step();
        assert_eq!(rig.pair.a.sent(), [(index, None)]);
    }
    rig.pair.run();
    assert_eq!(bytes(&rig.view, 0, 16), [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]);
}

#[test]
fn a_flag_in_host_memory_does_not_overtake_data_on_a_device() {
    let mut rig = rig();
    let (data, flag) = (remote(&rig.mr, 0), remote(&rig.pair.mr_b, 0));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, data).inline(b"data"));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, flag).inline(b"flag").signaled());
    steps(&rig.pair);
    assert_eq!(bytes(rig.pair.mr_b.region(), 0, 4), [0; 4]);
    rig.copier.allow(1);
    rig.pair.run();
    assert_eq!(bytes(rig.pair.mr_b.region(), 0, 4), b"flag");
    assert!(rig.pair.a.poll_send().is_some());
}

#[test]
fn engines_of_two_devices_do_not_overtake_each_other() {
    let mut rig = rig();
    let Device { mr: second, view, copier: engine } = device(&rig.pair, 1);
    let (first, then) = (remote(&rig.mr, 0), remote(&second, 0));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, first).inline(b"one"));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, then).inline(b"two").signaled());
    engine.allow(1);
    steps(&rig.pair);
    assert_eq!(bytes(&view, 0, 3), [0; 3]);
    rig.copier.allow(1);
    rig.pair.run();
    assert_eq!(bytes(&view, 0, 3), b"two");
}

#[test]
fn a_message_over_two_devices_is_not_overtaken() {
    let mut rig = rig();
    let Device { mr: second, view, copier: engine } = device(&rig.pair, 1);
    rig.pair.b.post_recv(&[sge(&rig.mr, 0, 4), sge(&second, 0, 4)]);
    rig.pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).inline(b"leftright"[..8].as_ref()));
    let over = remote(&rig.mr, 0);
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, over).inline(b"over").signaled());
    rig.copier.allow(2);
    steps(&rig.pair);
    assert_eq!(bytes(&rig.view, 0, 4), b"left", "half of the message is on its way");
    engine.allow(1);
    rig.pair.run();
    assert_eq!((bytes(&rig.view, 0, 4), bytes(&view, 0, 4)), (b"over".to_vec(), b"righ".to_vec()));
}

#[test]
fn a_gather_mixes_kinds_of_memory() {
    let mut rig = rig();
    rig.copier.allow(u64::MAX);
    rig.view.write(0, b"device").unwrap();
    rig.pair.mr_a.region().write(0, b"host").unwrap();
    let to = remote(&rig.pair.mr_b, 0);
    let parts = [sge(&rig.mr, 0, 6), sge(&rig.pair.mr_a, 0, 4), sge(&rig.mr, 0, 3)];
    rig.pair.a.post_wqe(|b, at| {
        parts.iter().fold(WqeBuilder::write(b, at, to), |w, &s| w.sge(s)).signaled()
    });
    rig.pair.run();
    assert_eq!(bytes(rig.pair.mr_b.region(), 0, 13), b"devicehostdev");
}

#[test]
fn a_receive_completes_when_its_bytes_are_there() {
    let mut rig = rig();
    rig.pair.b.post_recv(&[sge(&rig.mr, 8, 8)]);
    rig.pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).inline(b"message").signaled());
    steps(&rig.pair);
    assert_eq!((rig.pair.b.poll_recv(), rig.pair.a.poll_send()), (None, None));
    rig.copier.allow(1);
    rig.pair.run();
    assert!(matches!(rig.pair.b.poll_recv(), Some(Cqe::Receive { byte_cnt: 7, .. })));
    assert!(rig.pair.a.poll_send().is_some());
    assert_eq!(bytes(&rig.view, 8, 8), b"message\0");
}

#[test]
fn atomics_on_a_device_come_one_at_a_time() {
    let mut rig = rig();
    let (word, here, there) =
        (remote(&rig.mr, 16), local(&rig.pair.mr_a, 0), local(&rig.pair.mr_b, 0));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::fetch_add(b, at, word, 5, here).signaled());
    rig.pair.b.post_wqe(|b, at| WqeBuilder::fetch_add(b, at, word, 7, there).signaled());
    steps(&rig.pair);
    assert_eq!(rig.copier.waiting(), 1, "the second has not read the word");
    rig.copier.allow(u64::MAX);
    rig.pair.run();
    assert_eq!(bytes(&rig.view, 16, 8), 12u64.to_le_bytes());
    assert_eq!(bytes(rig.pair.mr_a.region(), 0, 8), 0u64.to_le_bytes());
    assert_eq!(bytes(rig.pair.mr_b.region(), 0, 8), 5u64.to_le_bytes());
    // The word on the host, the result on the device.
    let (word, back) = (remote(&rig.pair.mr_b, 0), local(&rig.mr, 24));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::compare_swap(b, at, word, 5, 6, back).signaled());
    rig.pair.run();
    assert_eq!(bytes(&rig.view, 24, 8), 5u64.to_le_bytes());
    assert_eq!(bytes(rig.pair.mr_b.region(), 0, 8), 6u64.to_le_bytes());
}

#[test]
fn a_fence_waits_for_reads() {
    let mut rig = rig();
    rig.view.write(0, b"read me").unwrap();
    let (from, to) = (remote(&rig.mr, 0), sge(&rig.pair.mr_a, 0, 7));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::read(b, at, from).sge(to));
    let (again, out) = (sge(&rig.pair.mr_a, 0, 7), remote(&rig.mr, 100));
    rig.pair.a.post_wqe(|b, at| {
        WqeBuilder::write(b, at, out)
            .sge(again)
            .fence(warpverbs_mlx5::flags::Fence::Fence)
            .signaled()
    });
    steps(&rig.pair);
    assert_eq!(rig.copier.waiting(), 1);
    rig.copier.allow(u64::MAX);
    rig.pair.run();
    assert_eq!(bytes(&rig.view, 100, 7), b"read me");
}

#[test]
fn an_error_waits_for_what_is_in_flight() {
    let mut rig = rig();
    let (good, bad) = (remote(&rig.mr, 0), remote(&rig.mr, 4090));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, good).inline(b"good").signaled());
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, bad).inline(b"too long").signaled());
    steps(&rig.pair);
    assert_eq!(rig.pair.a.qp.state(), QpState::Rts);
    rig.copier.allow(1);
    rig.pair.run();
    assert_eq!(rig.pair.a.sent(), [(0, None), (1, Some(Syndrome::RemoteAccess))]);
}

#[test]
fn a_broken_copy_engine_is_an_error() {
    let mut rig = rig();
    let to = remote(&rig.mr, 0);
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"lost"));
    steps(&rig.pair);
    rig.copier.break_down();
    rig.pair.run();
    assert_eq!(rig.pair.a.sent(), [(0, Some(Syndrome::RemoteOp))]);
}

#[test]
fn err_flushes_what_is_in_flight_after_its_copies() {
    let mut rig = rig();
    let to = remote(&rig.mr, 0);
    for _ in 0..2 {
        rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"x").signaled());
    }
    steps(&rig.pair);
    rig.pair.a.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    steps(&rig.pair);
    rig.copier.allow(u64::MAX);
    rig.pair.run();
    assert_eq!(rig.pair.a.sent(), [(0, FLUSH), (1, FLUSH)]);
}

#[test]
fn everything_may_be_dropped_while_copies_are_under_way() {
    let mut rig = rig();
    let to = remote(&rig.mr, 0);
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"last"));
    steps(&rig.pair);
    let Rig { pair, mr, view, copier } = rig;
    drop(mr);
    let allow = std::thread::spawn({
        let copier = copier.clone();
        move || copier.allow(u64::MAX)
    });
    // The QP waits for its copies, not the other way round.
    drop(pair);
    allow.join().unwrap();
    assert_eq!(bytes(&view, 0, 4), b"last");
}

/// A SEND to a receive on the device, started and not finished; two more receives are posted.
fn half_sent(rig: &mut Rig) {
    for _ in 0..3 {
        rig.pair.b.post_recv(&[sge(&rig.mr, 0, 8)]);
    }
    rig.pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).inline(b"message").signaled());
    steps(&rig.pair);
}

#[test]
fn every_receive_is_completed_once_whatever_becomes_of_the_message() {
    type End = fn(&mut Rig);
    let ends: [(&str, End); 4] = [
        ("the engine breaks down", |rig| {
            rig.copier.break_down();
            rig.pair.run();
        }),
        ("the receiver fails first", |rig| {
            rig.pair.b.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
        }),
        ("the sender is reset", |rig| {
            rig.copier.allow(u64::MAX);
            rig.pair.a.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
            rig.pair.run();
            rig.pair.b.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
        }),
        ("the sender fails and the message arrives", |rig| {
            rig.pair.a.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
            rig.copier.allow(u64::MAX);
            rig.pair.run();
            assert_eq!(rig.pair.b.received(), [(0, None)]);
            rig.pair.b.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
        }),
    ];
    for (name, end) in ends {
        let mut rig = rig();
        half_sent(&mut rig);
        end(&mut rig);
        let first = usize::from(name.ends_with("arrives"));
        let flushed = [(0, FLUSH), (1, FLUSH), (2, FLUSH)];
        assert_eq!(rig.pair.b.received(), flushed[first..], "{name}");
        rig.copier.allow(u64::MAX);
        rig.pair.run();
        assert_eq!(rig.pair.b.poll_recv(), None, "{name}");
    }
}

#[test]
fn a_message_from_before_a_reset_completes_no_receive_after_it() {
    let mut rig = rig();
    half_sent(&mut rig);
    rig.pair.b.reset();
    connect(&rig.pair.b, rig.pair.a.qp.qpn(), QpAttrs::default());
    rig.copier.allow(u64::MAX);
    rig.pair.run();
    assert_eq!(rig.pair.b.poll_recv(), None);
}

#[test]
fn only_the_first_of_several_copies_that_fail_is_the_error() {
    let mut rig = rig();
    let to = remote(&rig.mr, 0);
    for _ in 0..3 {
        rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"lost").signaled());
    }
    steps(&rig.pair);
    rig.copier.break_down();
    rig.pair.run();
    assert_eq!(rig.pair.a.sent(), [(0, Some(Syndrome::RemoteOp)), (1, FLUSH), (2, FLUSH)]);
    assert_eq!(rig.pair.b.qp.state(), QpState::Err, "0x14 ends the peer as well");
}

#[test]
fn the_engine_does_not_wait_for_one_copy_because_another_failed() {
    let mut rig = rig();
    let second = device(&rig.pair, 1);
    second.copier.break_down();
    rig.pair.b.post_recv(&[sge(&rig.mr, 0, 4), sge(&second.mr, 0, 4)]);
    rig.pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).inline(b"leftrest").signaled());
    rig.pair.b.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    steps(&rig.pair);
    assert!(rig.pair.b.poll_send().is_some(), "other QPs go on");
    assert_eq!((rig.copier.waiting(), rig.pair.a.poll_send()), (1, None), "not before it landed");
    rig.copier.allow(1);
    rig.pair.run();
    assert_eq!(rig.pair.a.sent(), [(0, Some(Syndrome::RemoteOp))]);
}

#[test]
fn an_engine_that_hangs_fails_its_wqe_and_the_peer() {
    let mut rig = rig();
    let to = remote(&rig.mr, 0);
    rig.pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"lost").signaled());
    steps(&rig.pair);
    rig.pair.clock.advance(Duration::from_secs(9));
    steps(&rig.pair);
    assert_eq!(rig.pair.a.poll_send(), None);
    rig.pair.clock.advance(Duration::from_secs(2));
    rig.pair.run();
    assert_eq!(rig.pair.a.sent(), [(0, Some(Syndrome::RemoteOp))]);
    assert_eq!((rig.pair.a.qp.state(), rig.pair.b.qp.state()), (QpState::Err, QpState::Err));
    // The engine may still touch the memory, which nobody gives back before that.
    rig.copier.allow(1);
    assert_eq!(bytes(&rig.view, 0, 4), b"lost");
}

/// The peer is destroyed while a message is on its way to it: the sender hears nothing more, whether the
/// payload arrives or not.
#[test]
fn a_peer_that_goes_before_its_payload_has_come() {
    for revoked in [false, true] {
        let Rig { pair, mr, copier, .. } = rig();
        let Pair { nic, mut a, mut b, .. } = pair;
        b.post_recv(&[sge(&mr, 0, 64)]);
        let to = remote(&mr, 128);
        a.post_wqe(|buf, at| WqeBuilder::write_imm(buf, at, to, 7).inline(&[9; 32]).signaled());
        (0..5).for_each(|_| assert_ne!(nic.step(), Step::Idle));
        drop(b);
        if revoked {
            nic.faults().revoke(mr.lkey(), true).unwrap();
        }
        copier.allow(1 << 40);
        rest([&nic]);
        assert_eq!(a.only_sent(), Some(Some(Syndrome::TransportRetryExc)), "{revoked}");
        assert_eq!(nic.stats().stale_slots, 0);
    }
}
