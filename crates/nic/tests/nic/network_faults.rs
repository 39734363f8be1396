//! Two NICs over links that lose, double, reorder, corrupt and delay, in virtual time, by seed.
//!
//! `WARPVERBS_SEED=<seed>` repeats one run, `WARPVERBS_RUNS=<n>` makes more of them.

use crate::conversation::{Conversation, simulate_all};
use rand::RngExt;
use std::time::Duration;
use warpverbs_dev::{Net, bytes, remote, sge};
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Remote, WqeBuilder};
use warpverbs_nic::link::{Link, Shm};
use warpverbs_nic::{AsyncEvent, QpAttrs, QpState, Status, Step, UdpConfig};

/// Virtual time in which everything must be over.
const LONG: Duration = Duration::from_secs(600);

/// True if everything arrived, false if eight losses in a row ended a connection.
fn simulate(seed: u64, mut talk: Conversation) -> bool {
    for _ in 0..talk.rng.random_range(1..60) {
        talk.post();
        match talk.rng.random_range(0..16) {
            0..4 => {
                let time = Duration::from_micros(talk.rng.random_range(0..100));
                talk.net.run_for(time);
                talk.poll();
            }
            4 => talk.stall(),
            _ => {}
        }
    }
    talk.finish();
    let end = talk.net.clock.now() + LONG;
    let arrived = loop {
        talk.net.run();
        let state = talk.poll();
        if state == Some(true) {
            break true;
        }
        if talk.rng.random_range(0..64) == 0 {
            talk.stall();
        } else if !talk.net.pass_until(end) {
            assert!(state == Some(false), "seed {seed} hangs: {}", talk.progress());
            break false;
        }
    };
    talk.check();
    arrived || talk.fragile
}

#[test]
fn everything_arrives_once_and_in_order_whatever_the_link_does() {
    simulate_all(300, |seed| simulate(seed, Conversation::new(seed, [false; 2])));
}

#[test]
fn everything_arrives_over_shared_memory_with_faults() {
    let bind = ([127, 0, 0, 1], 0).into();
    let config = UdpConfig::at(bind);
    let link = || Box::new(Shm::bind(&config).expect("an address")) as Box<dyn Link>;
    simulate_all(60, |seed| {
        simulate(seed, Conversation::over(seed, [false; 2], || [link(), link()]))
    });
}

/// True if everything arrived, false if eight losses in a row ended a connection.
fn simulate_bounced(seed: u64) -> bool {
    let mut talk =
        Conversation::new(seed, [[true, true], [true, false], [false, true]][seed as usize % 3]);
    // Every copy is done at its own time, between packets and timers.
    let pace = talk.rng.random_range(1..40u32);
    let mut nth = 0;
    let end = talk.net.clock.now() + LONG;
    for _ in 0..4_000_000 {
        if nth < 40 && talk.rng.random_range(0..20) == 0 {
            talk.post();
            nth += 1;
            if nth == 40 {
                talk.finish();
            }
        }
        let idle = [talk.net.a.nic.step(), talk.net.b.nic.step()] == [Step::Idle; 2];
        let Conversation { rng, .. } = &mut talk;
        let lands = rng.random_range(0..pace) == 0;
        if lands {
            talk.copiers().for_each(|copier| copier.allow(copier.waiting().min(1) as u64));
        }
        match talk.poll() {
            Some(arrived) if nth == 40 => {
                if arrived {
                    talk.check();
                }
                return arrived || talk.fragile;
            }
            Some(false) => return talk.fragile,
            _ => {}
        }
        if idle {
            let goes_on = talk.net.pass_until(end) || nth < 40;
            assert!(goes_on, "seed {seed} hangs: {}", talk.progress());
        } else if talk.rng.random_range(0..8) == 0 {
            let time = Duration::from_nanos(talk.rng.random_range(0..2000));
            talk.net.clock.advance(time);
        }
    }
    panic!("seed {seed} does not end: {}", talk.progress());
}

#[test]
fn everything_arrives_once_and_in_order_whatever_link_and_engines_do() {
    simulate_all(150, simulate_bounced);
}

fn quick() -> QpAttrs {
    QpAttrs { timeout: Some(8), retry: Some(2), rnr_retry: Some(1), ..QpAttrs::default() }
}

#[test]
fn a_silent_peer_is_given_up_in_time() {
    let mut net = Net::perfect(quick());
    let to = remote(&net.b.mr, 0);
    net.b.port.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    for _ in 0..2 {
        net.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"x").signaled());
    }
    let mut ends = vec![];
    let given_up = net.run_until(Duration::from_millis(10), |net| {
        ends.extend(net.a.port.sent());
        ends.len() == 2
    });
    assert!(given_up, "after {:?}: {ends:?}", net.clock.now());
    let expected = [(0, Some(Syndrome::TransportRetryExc)), (1, Some(Syndrome::WrFlush))];
    assert_eq!(ends, expected);
    assert_eq!(net.a.port.qp.state(), QpState::Err);
    assert_eq!(net.a.port.qp.first_error().unwrap().status, Status::RetryExceeded);
}

/// Posts what `build` makes from `a`; the error at either end and b's event.
fn refusal(
    net: &mut Net,
    build: impl for<'x> FnOnce(&'x mut [u8], warpverbs_mlx5::wqe::Position) -> WqeBuilder<'x>,
) -> (Option<Syndrome>, Option<Syndrome>, Option<AsyncEvent>) {
    net.a.port.post_wqe(build);
    net.run_for(Duration::from_millis(20));
    let only = |of: Vec<(u16, Option<Syndrome>)>| match of[..] {
        [] => None,
        [(_, error)] => Some(error.expect("an error")),
        _ => panic!("{of:?}"),
    };
    let (at_a, at_b) = (only(net.a.port.sent()), only(net.b.port.received()));
    assert_eq!(net.a.port.qp.state(), QpState::Err);
    (at_a, at_b, net.b.nic.poll_event())
}

#[test]
fn refusals_are_those_of_loopback() {
    let mut net = Net::perfect(quick());
    let (qpn, mr) = (net.b.port.qp.qpn(), &net.b.mr);
    let to = Remote { addr: mr.addr(), rkey: Rkey(mr.rkey() ^ 1) };
    let found = refusal(&mut net, |b, at| WqeBuilder::write(b, at, to).inline(b"x").signaled());
    let event = Some(AsyncEvent::QpAccessError { qpn });
    assert_eq!(found, (Some(Syndrome::RemoteAccess), None, event));
    assert_eq!(net.b.nic.take_violations().len(), 1);
    assert_eq!(net.b.port.qp.state(), QpState::Err);

    let mut net = Net::perfect(quick());
    let qpn = net.b.port.qp.qpn();
    let small = sge(&net.b.mr, 0, 3);
    net.b.port.post_recv(&[small]);
    let found = refusal(&mut net, |b, at| WqeBuilder::send(b, at).inline(b"four").signaled());
    let event = Some(AsyncEvent::QpRequestError { qpn });
    assert_eq!(found, (Some(Syndrome::RemoteInvalReq), Some(Syndrome::LocalLength), event));

    let mut net = Net::perfect(quick());
    let found = refusal(&mut net, |b, at| WqeBuilder::send(b, at).inline(b"x").signaled());
    assert_eq!(found, (Some(Syndrome::RnrRetryExc), None, None));
    assert_eq!(net.b.port.qp.state(), QpState::Rts);

    let mut net = Net::perfect(quick());
    let own = warpverbs_mlx5::wqe::Sge { addr: 1, ..sge(&net.a.mr, 0, 8) };
    let to = remote(&net.b.mr, 0);
    let found = refusal(&mut net, |b, at| WqeBuilder::write(b, at, to).sge(own).signaled());
    assert_eq!(found, (Some(Syndrome::LocalProt), None, None));
}

#[test]
fn an_invalidated_key_is_gone_before_its_completion() {
    let mut net = Net::perfect(quick());
    let place = sge(&net.b.mr, 0, 8);
    net.b.port.post_recv(&[place]);
    let rkey = Rkey(net.b.mr.rkey());
    // The receive's own memory has the same key: the payload is empty.
    net.a.port.post_wqe(|b, at| WqeBuilder::send_inval(b, at, rkey).signaled());
    net.run_for(Duration::from_millis(5));
    let arrived = net.b.port.poll_recv();
    assert!(
        matches!(arrived, Some(Cqe::Receive { kind: ReceivedKind::SendInvalidate(key), .. }) if key == rkey),
        "{arrived:?}"
    );
    assert_eq!(net.a.port.sent(), [(0, None)]);
    let to = remote(&net.b.mr, 0);
    let found = refusal(&mut net, |b, at| WqeBuilder::write(b, at, to).inline(b"x").signaled());
    assert_eq!(found.0, Some(Syndrome::RemoteAccess));
}

#[test]
fn a_drained_queue_says_so_and_goes_on() {
    let mut net = Net::perfect(quick());
    let to = remote(&net.b.mr, 0);
    net.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"1").signaled());
    net.run_for(Duration::from_millis(1));
    net.a.port.qp.modify(QpState::Sqd, &QpAttrs::default()).unwrap();
    net.run_for(Duration::from_millis(1));
    let qpn = net.a.port.qp.qpn();
    assert_eq!(net.a.nic.poll_event(), Some(AsyncEvent::SqDrained { qpn }));
    net.a.port.qp.modify(QpState::Rts, &QpAttrs::default()).unwrap();
    net.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"2").signaled());
    net.run_for(Duration::from_millis(1));
    assert_eq!(bytes(net.b.mr.region(), 0, 1), b"2");
    assert_eq!(net.a.port.sent(), [(0, None), (1, None)]);
}
