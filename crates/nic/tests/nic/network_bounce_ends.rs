//! Memory that only a copy engine reaches, on QPs whose peer is on the network: engines that fail
//! or hang, and QPs that end while copies are under way.

use crate::device_network::{self, DONE, Rig, attrs, rig};
use std::time::Duration;
use warpverbs_dev::{Device, bytes, local, remote, sge};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Local, Position, Remote, Sge, WqeBuilder};
use warpverbs_nic::{AsyncEvent, QpAttrs, QpState, Rule, Status, Step};

/// How a WRITE and a READ end if an engine fails at one point, with the state of both QPs.
type Ends = (Option<Result<(), Syndrome>>, QpState, QpState);

fn ends(rig: &mut Rig) -> Ends {
    rig.net.run_for(Duration::from_millis(20));
    (rig.sent(), rig.net.a.port.qp.state(), rig.net.b.port.qp.state())
}

fn failed(syndrome: Syndrome) -> Option<Result<(), Syndrome>> {
    Some(Err(syndrome))
}

#[test]
fn an_engine_that_fails_is_an_error_of_whose_memory_it_is() {
    // Of the first end's work between device memory of both; an atomic brings its result to the host.
    type Build = for<'b> fn(&'b mut [u8], Position, Remote, Sge, Local) -> WqeBuilder<'b>;
    // Whether its own engine fails, or the peer's.
    let cases: [(&str, bool, Build); 5] = [
        ("source of a WRITE", true, |b, at, to, from, _| WqeBuilder::write(b, at, to).sge(from)),
        ("target of a READ", true, |b, at, from, to, _| WqeBuilder::read(b, at, from).sge(to)),
        ("target of a WRITE", false, |b, at, to, _, _| WqeBuilder::write(b, at, to).inline(b"x")),
        ("source of a READ", false, |b, at, from, to, _| WqeBuilder::read(b, at, from).sge(to)),
        ("word of an atomic", false, |b, at, word, _, back| {
            WqeBuilder::fetch_add(b, at, word, 2, back)
        }),
    ];
    for (name, own, build) in cases {
        let mut rig = rig();
        let (there, here) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 9000));
        let back = local(&rig.net.a.mr, 0);
        if own {
            rig.far.copier.pace(1);
        }
        rig.post(|b, at| build(b, at, there, here, back).signaled());
        // This one is flushed.
        rig.post(|b, at| WqeBuilder::nop(b, at).signaled());
        rig.steps();
        let device = if own { &rig.near } else { &rig.far };
        device.copier.break_down();
        let (syndrome, peer) = match own {
            true => (Syndrome::LocalProt, QpState::Rts),
            false => (Syndrome::RemoteOp, QpState::Err),
        };
        assert_eq!(ends(&mut rig), (failed(syndrome), QpState::Err, peer), "{name}");
        assert_eq!([rig.sent(), rig.sent()], [failed(Syndrome::WrFlush), None], "{name}");
        let (nic, qpn, status) = match own {
            true => (&rig.net.a.nic, rig.net.a.port.qp.qpn(), Status::LocalProtection),
            false => (&rig.net.b.nic, rig.net.b.port.qp.qpn(), Status::LocalQpOperation),
        };
        let violations = nic.take_violations();
        let copy = matches!(violations[..], [v] if matches!(v.rule, Rule::CopyFailed { .. }));
        assert!(copy, "{name}: {violations:?}");
        assert_eq!(nic.poll_event(), Some(AsyncEvent::QpFatal { qpn, status }), "{name}");
    }
}

#[test]
fn an_engine_that_fails_completes_every_receive_once() {
    let mut rig = rig();
    for _ in 0..2 {
        rig.net.b.port.post_recv(&[sge(&rig.far.mr, 0, 8)]);
    }
    rig.post(|b, at| WqeBuilder::send(b, at).inline(b"lost").signaled());
    rig.steps();
    rig.far.copier.break_down();
    assert_eq!(ends(&mut rig), (failed(Syndrome::RemoteOp), QpState::Err, QpState::Err));
    let flushed = failed(Syndrome::WrFlush);
    assert_eq!([(); 3].map(|()| rig.received()), [flushed, flushed, None]);
}

#[test]
fn what_was_complete_before_an_engine_failed_stays_complete() {
    let mut rig = rig();
    let to = remote(&rig.far.mr, 0);
    for _ in 0..2 {
        rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"x").signaled());
    }
    rig.steps();
    rig.far.copier.allow(1);
    rig.far.copier.break_down();
    let (first, ..) = ends(&mut rig);
    // The engine has lost count of what it did: either is right, but only for the first.
    assert!(matches!(first, Some(Ok(()) | Err(Syndrome::RemoteOp))), "{first:?}");
    assert!(matches!(rig.sent(), Some(Err(_))));
    assert_eq!(rig.sent(), None);
}

#[test]
fn an_engine_that_hangs_is_given_up() {
    let mut rig = rig();
    let to = remote(&rig.far.mr, 0);
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"never").signaled());
    rig.steps();
    // Retries of the requester end sooner.
    rig.net.clock.advance(Duration::from_secs(11));
    rig.steps();
    let (qpn, status) = (rig.net.b.port.qp.qpn(), Status::LocalQpOperation);
    assert_eq!(rig.net.b.nic.poll_event(), Some(AsyncEvent::QpFatal { qpn, status }));
    assert_eq!(rig.net.b.port.qp.state(), QpState::Err);
    assert!(matches!(rig.sent(), Some(Err(Syndrome::RemoteOp | Syndrome::TransportRetryExc))));
    assert_eq!(rig.net.b.nic.step(), Step::Idle, "it is waited for no longer");
    // The memory that it may still touch is kept.
    let Rig { net, far: Device { mr, view, copier }, .. } = rig;
    drop((net, mr));
    copier.allow(u64::MAX);
    assert_eq!(bytes(&view, 0, 5), b"never");
}

#[test]
fn err_and_reset_wait_for_no_copy_and_lose_no_completion() {
    let flushed = Some(Err(Syndrome::WrFlush));
    let mut rig = rig();
    rig.net.b.port.post_recv(&[sge(&rig.far.mr, 0, 8)]);
    rig.post(|b, at| WqeBuilder::send(b, at).inline(b"message").signaled());
    rig.steps();
    rig.net.b.port.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    rig.steps();
    assert_eq!((rig.far.copier.waiting(), rig.received()), (1, flushed));
    rig.go();
    rig.net.run_for(Duration::from_millis(20));
    assert_eq!((rig.received(), bytes(&rig.far.view, 0, 7)), (None, b"message".to_vec()));

    let mut rig = device_network::rig();
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 64, 8));
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.far.copier.allow(1);
    rig.steps();
    rig.net.a.port.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    rig.steps();
    assert_eq!((rig.near.copier.waiting(), rig.sent()), (1, None), "the buffer is written to");
    rig.near.copier.allow(1);
    rig.net.run();
    assert_eq!([rig.sent(), rig.sent()], [flushed, None]);

    // RESET in the middle of one, and a new life.
    let mut rig = device_network::rig();
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 64, 8));
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.far.copier.allow(1);
    rig.steps();
    rig.near.copier.allow(1);
    rig.net.a.port.reset();
    rig.net.b.port.reset();
    rig.net.a.connect(&rig.net.b, attrs());
    rig.net.b.connect(&rig.net.a, attrs());
    let there = remote(&rig.far.mr, 300);
    rig.post(|b, at| WqeBuilder::write(b, at, there).inline(b"anew").signaled());
    rig.go();
    rig.net.run();
    assert_eq!((rig.sent(), bytes(&rig.far.view, 300, 4)), (DONE, b"anew".to_vec()));
}

#[test]
fn everything_may_be_dropped_while_copies_are_under_way() {
    let mut rig = rig();
    let (from, to) = (sge(&rig.near.mr, 0, 4), remote(&rig.far.mr, 0));
    rig.near.view.write(0, b"last").unwrap();
    rig.near.copier.allow(1);
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.steps();
    let Rig { net, near, far } = rig;
    let Device { mr, view, copier } = far;
    drop((mr, near));
    let allow = std::thread::spawn({
        let copier = copier.clone();
        move || copier.allow(u64::MAX)
    });
    // The QP waits for its copies, not the other way round.
    drop(net);
    allow.join().unwrap();
    assert_eq!(bytes(&view, 0, 4), b"last");
}

#[test]
fn a_drained_queue_has_its_bytes() {
    let mut rig = rig();
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 8));
    rig.far.copier.pace(1);
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.steps();
    rig.net.a.port.qp.modify(QpState::Sqd, &QpAttrs::default()).unwrap();
    rig.steps();
    assert_eq!((rig.sent(), rig.net.a.nic.poll_event()), (None, None));
    rig.near.copier.allow(1);
    rig.net.run();
    let qpn = rig.net.a.port.qp.qpn();
    assert_eq!(rig.sent(), DONE);
    assert_eq!(rig.net.a.nic.poll_event(), Some(AsyncEvent::SqDrained { qpn }));
}
