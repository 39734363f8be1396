//! QPs that another device executes: what the device may do late, in part, or not at all.

use std::time::Duration;
use warpverbs_dev::{
    FakePlan, Port, PortConfig, ProxiedConfig, ProxiedPair, Receives, bytes, connect_proxied,
    local, sge,
};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::num::{Lkey, Rkey};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Remote, Sge, WqeBuilder};
use warpverbs_nic::{
    AsyncEvent, ModifyError, NicError, Path, ProxyLimits, QpAttrs, QpState, Rule, SrqConfig,
    SrqOrder, Status,
};

fn pair() -> ProxiedPair {
    ProxiedPair::new(ProxiedConfig::default()).unwrap()
}

fn limited(change: impl FnOnce(&mut ProxyLimits)) -> ProxiedPair {
    let mut plan = FakePlan::default();
    change(&mut plan.limits);
    ProxiedPair::new(ProxiedConfig { plan, ..ProxiedConfig::default() }).unwrap()
}

/// Puts a WRITE of 8 bytes from the start of the own buffer to `offset` of the peer's.
fn put_write(pair: &mut ProxiedPair, offset: u64, signaled: bool) -> u64 {
    let (from, to) = (sge(&pair.a.mr, 0, 8), pair.b.remote(offset));
    let port = &mut pair.a.port;
    port.put_wqe(|buf, at| {
        let wqe = WqeBuilder::write(buf, at, to).sge(from);
        if signaled { wqe.signaled() } else { wqe }
    })
}

const FLUSH: Option<Syndrome> = Some(Syndrome::WrFlush);

#[test]
fn one_request_of_a_list_is_signalled_and_retires_all() {
    let mut pair = pair();
    for i in 0..40 {
        put_write(&mut pair, i * 8, false);
    }
    pair.a.port.announce();
    pair.run();
    let stats = pair.device.stats(pair.a.port.qp.qpn());
    assert_eq!((stats.lists, stats.requests, stats.signaled), (2, 40, 2));
    let done = pair.a.port.qp.stats();
    assert_eq!((done.wqes.total(), done.bytes, done.send_cqes), (40, 320, 0));
}

#[test]
fn a_full_device_holds_work_in_the_ring() {
    let mut pair = limited(|limits| limits.send_depth = 3);
    for i in 0..10 {
        put_write(&mut pair, i * 8, i % 4 == 3);
    }
    pair.a.port.announce();
    pair.step();
    let qpn = pair.a.port.qp.qpn();
    assert_eq!(pair.device.stats(qpn).requests, 3, "no more than it has room for");
    assert_eq!(pair.a.port.sent(), [], "nothing is done, nothing failed");
    pair.run();
    assert_eq!(pair.device.stats(qpn).requests, 10);
    assert_eq!(pair.a.port.sent(), [(3, None), (7, None)]);
}

#[test]
fn every_status_becomes_its_syndrome_and_the_rest_is_flushed() {
    for &status in Status::ALL.iter().filter(|status| **status != Status::Success) {
        let mut pair = pair();
        pair.a.port.post_recv(&[sge(&pair.a.mr, 0, 8)]);
        pair.run();
        put_write(&mut pair, 0, false);
        put_write(&mut pair, 8, true);
        pair.device.fail_next(pair.a.port.qp.qpn(), status);
        pair.a.port.announce();
        pair.run_for(Duration::ZERO);
        let syndrome = Syndrome::of(status);
        assert_eq!(pair.a.port.sent(), [(0, syndrome), (1, FLUSH)], "{status:?}");
        assert_eq!(pair.a.port.received(), [(0, FLUSH)], "{status:?}");
        assert_eq!(pair.a.port.qp.state(), QpState::Err);
        if status != Status::Flushed {
            let first = pair.a.port.qp.first_error().unwrap();
            assert_eq!((first.index, first.status), (0, status));
            let event = AsyncEvent::QpFatal { qpn: pair.a.port.qp.qpn(), status };
            assert_eq!(pair.nic.poll_event(), Some(event));
        }
        // Requests posted later are flushed, too.
        put_write(&mut pair, 0, true);
        pair.a.port.announce();
        pair.a.port.post_recv(&[]);
        pair.run();
        assert_eq!(pair.a.port.sent(), [(2, FLUSH)]);
        assert_eq!(pair.a.port.received(), [(1, FLUSH)]);
    }
}

/// A device reports failures when it likes, also those of a QP that has begun anew.
#[test]
fn a_failure_that_is_reported_after_a_reset_ends_nothing() {
    let mut pair = pair();
    let qpn = pair.a.port.qp.qpn();
    for event in [
        AsyncEvent::QpFatal { qpn, status: Status::RetryExceeded },
        AsyncEvent::QpAccessError { qpn },
        AsyncEvent::QpRequestError { qpn },
    ] {
        put_write(&mut pair, 0, true);
        pair.nic.raise(event);
        assert_eq!(pair.a.port.qp.state(), QpState::Rts, "{event:?}");
        pair.a.port.announce();
        pair.run();
        assert!(pair.a.port.sent().iter().all(|(_, syndrome)| syndrome.is_none()), "{event:?}");
    }
    // One that is true.
    pair.device.kill(qpn);
    pair.nic.raise(AsyncEvent::QpAccessError { qpn });
    assert_eq!(pair.a.port.qp.state(), QpState::Err);
}

#[test]
fn work_before_an_error_counts_as_done() {
    let mut pair = pair();
    for i in 0..4 {
        put_write(&mut pair, i * 8, false);
    }
    pair.a.port.announce();
    pair.step();
    assert_eq!(pair.device.progress(2), 2);
    pair.device.fail_next(pair.a.port.qp.qpn(), Status::RetryExceeded);
    pair.run();
    assert_eq!(
        pair.a.port.sent(),
        [(2, Some(Syndrome::TransportRetryExc)), (3, FLUSH)],
        "two unsignalled successes are silent"
    );
    assert_eq!(pair.a.port.qp.stats().wqes.total(), 2);
}

#[test]
fn a_peer_that_dies_ends_everything_with_the_right_cause() {
    let mut pair = pair();
    pair.b.port.post_recv(&[sge(&pair.b.mr, 0, 8)]);
    pair.run();
    pair.device.kill(pair.b.port.qp.qpn());
    put_write(&mut pair, 0, true);
    pair.a.port.announce();
    pair.run();
    assert_eq!(pair.a.port.sent(), [(0, Some(Syndrome::TransportRetryExc))]);
    assert_eq!(pair.b.port.received(), [(0, FLUSH)]);
    assert_eq!(pair.b.port.qp.state(), QpState::Err);
}

#[test]
fn a_device_that_goes_or_falls_silent_holds_up_nobody() {
    for unplug in [true, false] {
        let mut pair = pair();
        pair.a.port.post_recv(&[]);
        put_write(&mut pair, 0, true);
        put_write(&mut pair, 0, true);
        pair.a.port.announce();
        pair.step();
        if unplug {
            pair.device.unplug();
            pair.run();
            let fatal = Syndrome::of(Status::Fatal);
            assert_eq!(pair.a.port.sent(), [(0, fatal), (1, FLUSH)]);
        } else {
            pair.device.silence(true);
            pair.a.port.qp.modify(QpState::Err, &Default::default()).unwrap();
            pair.run();
            assert_eq!(pair.a.port.sent(), [], "the device may still be at it");
            assert!(pair.nic.next_timer().is_some());
            pair.run_for(Duration::from_secs(3));
            assert_eq!(pair.a.port.sent(), [(0, FLUSH), (1, FLUSH)]);
        }
        assert_eq!(pair.a.port.received(), [(0, FLUSH)]);
        assert_eq!(pair.nic.next_timer(), None);
    }
}

#[test]
fn what_comes_after_a_reset_is_not_taken_for_new_work() {
    let mut pair = pair();
    put_write(&mut pair, 0, true);
    pair.a.port.post_recv(&[]);
    pair.a.port.announce();
    pair.step();
    // Executed and completed, but not polled.
    assert_eq!(pair.device.progress(1), 1);
    pair.a.port.reset();
    pair.b.port.reset();
    pair.connect();
    put_write(&mut pair, 0, true);
    pair.a.port.announce();
    for _ in 0..16 {
        pair.nic.step();
    }
    assert_eq!(pair.a.port.sent(), [], "the old completion is of the old life");
    pair.run();
    assert_eq!(pair.a.port.sent(), [(0, None)]);
}

#[test]
fn requests_that_are_the_owners_fault_do_not_reach_the_device() {
    let foreign = |pair: &ProxiedPair| {
        let (region, access) = (pair.a.mr.region(), Access::all());
        pair.nic.reg_mr(&pair.pd, region, access).unwrap()
    };
    fn finish(wqe: WqeBuilder<'_>) -> usize {
        wqe.finish().unwrap().len()
    }
    type Build = fn(&ProxiedPair, &mut [u8], warpverbs_mlx5::wqe::Position, u32) -> usize;
    let cases: [(&str, Syndrome, Build); 8] = [
        ("data.lkey", Syndrome::LocalProt, |pair, buf, at, _| {
            let bad = Sge { lkey: Lkey(pair.a.mr.lkey() ^ 1), ..sge(&pair.a.mr, 0, 8) };
            finish(WqeBuilder::write(buf, at, pair.b.remote(0)).sge(bad))
        }),
        ("data.lkey", Syndrome::LocalProt, |pair, buf, at, foreign| {
            let bad = Sge { lkey: Lkey(foreign), ..sge(&pair.a.mr, 0, 8) };
            finish(WqeBuilder::write(buf, at, pair.b.remote(0)).sge(bad))
        }),
        ("ctrl.opcode", Syndrome::LocalQpOp, |_, buf, at, _| {
            finish(WqeBuilder::local_inval(buf, at, Rkey(5)))
        }),
        ("ctrl.opcode", Syndrome::LocalQpOp, |pair, buf, at, _| {
            finish(WqeBuilder::wait(buf, at, pair.b.port.send_cq().cqn(), 0))
        }),
        ("ctrl.opcode", Syndrome::LocalQpOp, |pair, buf, at, _| {
            finish(WqeBuilder::dump(buf, at, sge(&pair.a.mr, 0, 8)))
        }),
        ("proxy device", Syndrome::LocalQpOp, |pair, buf, at, _| {
            finish(WqeBuilder::write(buf, at, pair.b.remote(0)).inline(&[1; 17]))
        }),
        ("proxy device", Syndrome::LocalQpOp, |pair, buf, at, _| {
            let sge = sge(&pair.a.mr, 0, 8);
            finish(WqeBuilder::write(buf, at, pair.b.remote(0)).sge(sge).sge(sge).sge(sge))
        }),
        ("wqebb", Syndrome::LocalQpOp, |_, buf, _, _| {
            buf[..64].fill(0);
            64
        }),
    ];
    for (field, syndrome, build) in cases {
        let mut pair = limited(|limits| (limits.inline_bytes, limits.send_sges) = (16, 2));
        let foreign = foreign(&pair);
        put_write(&mut pair, 0, false);
        let mut bytes = [0; 256];
        let len = build(&pair, &mut bytes, pair.a.port.position(), foreign.lkey());
        pair.a.port.put_bytes(&bytes[..len]);
        let last = put_write(&mut pair, 0, true) as u16;
        pair.a.port.announce();
        pair.run();
        assert_eq!(pair.device.stats(pair.a.port.qp.qpn()).requests, 1, "{field}");
        assert_eq!(pair.a.port.sent(), [(1, Some(syndrome)), (last, FLUSH)], "{field}");
        let violations = pair.nic.take_violations();
        assert_eq!(violations.iter().map(|v| v.rule.field()).collect::<Vec<_>>(), [field]);
        assert_eq!(pair.a.port.qp.first_error().unwrap().index, 1);
    }
}

#[test]
fn a_refused_request_ends_the_queue_and_is_remembered() {
    let mut pair = pair();
    put_write(&mut pair, 0, true);
    put_write(&mut pair, 0, true);
    pair.device.refuse_next(pair.a.port.qp.qpn(), 22);
    pair.a.port.announce();
    pair.run();
    assert_eq!(pair.a.port.sent(), [(0, FLUSH), (1, FLUSH)]);
    let first = pair.a.port.qp.first_error().unwrap();
    assert_eq!(first.rule, Some(Rule::DeviceRefused { errno: 22 }));
}

#[test]
fn nops_complete_in_their_turn() {
    let mut pair = pair();
    put_write(&mut pair, 0, false);
    pair.a.port.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    put_write(&mut pair, 0, false);
    pair.a.port.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.a.port.announce();
    pair.step();
    assert_eq!(pair.a.port.sent(), []);
    pair.run();
    assert_eq!(pair.a.port.sent(), [(1, None), (3, None)]);
    // One alone needs no device.
    pair.a.port.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.step();
    assert_eq!(pair.a.port.sent(), [(4, None)]);
}

#[test]
fn receives_follow_their_record_as_far_as_the_device_goes() {
    let mut pair = limited(|limits| limits.recv_depth = 2);
    for i in 0..5 {
        pair.b.port.post_recv(&[sge(&pair.b.mr, i * 64, 64)]);
    }
    pair.run();
    for i in 0..5 {
        let from = sge(&pair.a.mr, 0, 8 + i);
        pair.a.port.post_wqe(|buf, at| WqeBuilder::send_imm(buf, at, 0x1234 + i).sge(from));
    }
    pair.run();
    let qpn = pair.b.port.position().qpn;
    for i in 0..5 {
        let (wqe_counter, kind) = (i as u16, ReceivedKind::SendImm(0x1234 + i));
        let (byte_cnt, srqn, solicited) = (8 + i, 0, false);
        let expected =
            Cqe::Receive { qpn, wqe_counter, kind, byte_cnt, srqn, solicited, from: None };
        assert_eq!(pair.b.port.poll_recv(), Some(expected));
    }
}

#[test]
fn a_bad_receive_ends_the_queue_before_the_device_sees_it() {
    let mut pair = pair();
    pair.b.port.post_recv(&[sge(&pair.b.mr, 0, 64)]);
    pair.b.port.post_recv(&[Sge { lkey: Lkey(7), ..sge(&pair.b.mr, 0, 64) }]);
    pair.b.port.post_recv(&[]);
    pair.run();
    let protection = Some(Syndrome::LocalProt);
    assert_eq!(pair.b.port.received(), [(0, FLUSH), (1, protection), (2, FLUSH)]);
    let violations = pair.nic.take_violations();
    assert!(matches!(violations[..], [v] if v.index == 1 && v.rule.field() == "data.lkey"));
    assert_eq!(pair.b.port.qp.state(), QpState::Err);
}

#[test]
fn a_message_too_long_fails_both_sides() {
    let mut pair = pair();
    pair.b.port.post_recv(&[sge(&pair.b.mr, 0, 8)]);
    pair.b.port.post_recv(&[]);
    let from = sge(&pair.a.mr, 0, 9);
    pair.a.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from));
    pair.run();
    assert_eq!(pair.a.port.sent(), [(0, Some(Syndrome::RemoteInvalReq))]);
    assert_eq!(pair.b.port.received(), [(0, Some(Syndrome::LocalLength)), (1, FLUSH)]);
}

#[test]
fn atomics_and_reads_are_in_place_before_their_completion() {
    let mut pair = pair();
    pair.b.mr.region().write(0, &7u64.to_ne_bytes()).unwrap();
    let (to, back) = (pair.b.remote(0), local(&pair.a.mr, 64));
    pair.a.port.post_wqe(|buf, at| WqeBuilder::fetch_add(buf, at, to, 5, back).signaled());
    pair.run();
    let qpn = pair.a.port.position().qpn;
    let opcode = warpverbs_mlx5::opcode::SendOpcode::AtomicFa;
    let done = Cqe::Requester { qpn, wqe_counter: 0, opcode, byte_cnt: 8 };
    assert_eq!(pair.a.port.poll_send(), Some(done));
    assert_eq!(bytes(pair.a.mr.region(), 64, 8), 7u64.to_ne_bytes());
    assert_eq!(bytes(pair.b.mr.region(), 0, 8), 12u64.to_ne_bytes());
}

#[test]
fn a_bad_rkey_is_the_devices_to_find() {
    let mut pair = pair();
    pair.b.port.post_recv(&[]);
    pair.run();
    let to = Remote { rkey: Rkey(0x55), ..pair.b.remote(0) };
    let from = sge(&pair.a.mr, 0, 8);
    pair.a.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from));
    pair.run();
    assert_eq!(pair.a.port.sent(), [(0, Some(Syndrome::RemoteAccess))]);
    assert_eq!(pair.b.port.received(), [(0, FLUSH)]);
}

#[test]
fn shared_receives_go_to_the_devices_shared_queue() {
    let pair = pair();
    let (nic, pd, device) = (&pair.nic, &pair.pd, &pair.device);
    let far = device.srq();
    let (buf, dbr) = (HostBuf::region(8 * 64), HostBuf::region(64));
    let (buf, dbr) = (buf.unwrap(), dbr.unwrap());
    let config = SrqConfig {
        dialect: warpverbs_nic::Dialect::Mlx5,
        order: SrqOrder::Linked,
        buf: buf.clone(),
        log_size: 3,
        log_stride: 6,
        dbr: dbr.clone(),
    };
    let srq = nic.create_proxied_srq(pd, &config, Box::new(far.clone())).unwrap();
    srq.set_limit(2);
    let config = PortConfig { receives: Receives::Shared(srq.clone()), ..PortConfig::default() };
    let plain = Port::new(nic, pd, &config).unwrap_err();
    assert_eq!(plain, NicError::Foreign { what: "SRQ", owner: "kind of QP" });
    let proxy_device = Box::new(device.qp(Some(&far)));
    let mut port = Port::proxied(nic, pd, &config, proxy_device).unwrap();
    let mut peer =
        Port::proxied(nic, pd, &PortConfig::default(), Box::new(device.qp(None))).unwrap();
    for (port, peer) in [(&port, &peer), (&peer, &port)] {
        device.connect(port.qp.qpn(), peer.qp.qpn());
        connect_proxied(port, peer.qp.qpn(), Default::default());
    }
    for i in 0..3u16 {
        let mut slot = [0; 64];
        let to = [sge(&pair.b.mr, u64::from(i) * 64, 64)];
        warpverbs_mlx5::recv::build_srq(&mut slot, i + 1, &to).unwrap();
        buf.write(u64::from(i) * 64, &slot).unwrap();
    }
    dbr.write(0, &3u32.to_be_bytes()).unwrap();
    pair.run();
    for i in 0..2 {
        let from = sge(&pair.a.mr, 0, 8 + i);
        peer.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from));
    }
    pair.run();
    for i in 0..2u16 {
        let cqe = port.poll_recv().unwrap();
        let Cqe::Receive { wqe_counter, srqn, byte_cnt, .. } = cqe else { panic!("{cqe:?}") };
        assert_eq!((wqe_counter, srqn, byte_cnt), (i, srq.srqn(), 8 + u32::from(i)));
    }
    assert_eq!(pair.nic.poll_event(), Some(AsyncEvent::SrqLimit { srqn: srq.srqn() }));
    // The CQE of a message that came before the QP ends is there when it has ended, without a step.
    let from = sge(&pair.a.mr, 0, 10);
    peer.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from));
    pair.step();
    assert_eq!(device.progress(1), 1);
    assert_eq!(port.poll_recv(), None);
    port.qp.modify(QpState::Err, &Default::default()).unwrap();
    let cqe = port.poll_recv();
    assert!(matches!(cqe, Some(Cqe::Receive { wqe_counter: 2, byte_cnt: 10, .. })), "{cqe:?}");
    pair.run();
    let last = AsyncEvent::LastWqeReached { qpn: port.qp.qpn() };
    assert_eq!(pair.nic.poll_event(), Some(last));
    // A link out of the ring ends the SRQ.
    let mut slot = [0; 64];
    warpverbs_mlx5::recv::build_srq(&mut slot, 9, &[]).unwrap();
    buf.write(3 * 64, &slot).unwrap();
    dbr.write(0, &4u32.to_be_bytes()).unwrap();
    pair.run();
    assert_eq!(pair.nic.poll_event(), Some(AsyncEvent::SrqError { srqn: srq.srqn() }));
}

#[test]
fn paths_and_kinds_of_qps_do_not_mix() {
    let pair = pair();
    let (port, nic) = (&pair.a.port, &pair.nic);
    port.qp.modify(QpState::Reset, &Default::default()).unwrap();
    port.qp.modify(QpState::Init, &QpAttrs::init(Access::all())).unwrap();
    let rtr = QpAttrs::rtr(5);
    let refused = ModifyError::WrongPath { path: Path::Loopback, proxied: true };
    assert_eq!(port.qp.modify(QpState::Rtr, &rtr), Err(refused));
    let taken = Port::proxied(nic, &pair.pd, &PortConfig::default(), {
        let mut twin = pair.device.qp(None);
        twin.set_qpn(port.qp.qpn());
        Box::new(twin)
    });
    assert_eq!(taken.unwrap_err(), NicError::QpnTaken { qpn: port.qp.qpn() });
    let proxied = QpAttrs { path: Some(Path::Proxied), ..rtr };
    let other = Port::new(nic, &pair.pd, &PortConfig::default()).unwrap();
    other.qp.modify(QpState::Init, &QpAttrs::init(Access::all())).unwrap();
    let refused = ModifyError::WrongPath { path: Path::Proxied, proxied: false };
    assert_eq!(other.qp.modify(QpState::Rtr, &proxied), Err(refused));
}

#[test]
fn everything_may_go_with_work_outstanding() {
    let mut pair = pair();
    for i in 0..20 {
        put_write(&mut pair, i * 8, true);
    }
    pair.a.port.post_recv(&[]);
    pair.a.port.announce();
    pair.step();
    let ProxiedPair { nic, device, a, b, .. } = pair;
    drop(a.port);
    for _ in 0..10 {
        nic.step();
        device.progress(3);
    }
    drop((b, a.mr));
    nic.step();
    assert_eq!(nic.stats().live_qps, 0);
}
