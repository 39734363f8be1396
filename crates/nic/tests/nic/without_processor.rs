//! Peers on this host whose engine has no processor: that costs no retry and sends nothing twice.

use crate::shared_port::{Peer, completion, connect_with, host};
use rand::Rng;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use warpverbs_dev::{Host, Net, Port, PortConfig, bytes, connect_over, remote, sge};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Remote, WqeBuilder};
use warpverbs_nic::link::{Link, Shm, Udp};
use warpverbs_nic::{LinkKind, Mr, Mtu, QpAttrs, QpState, UdpConfig};

const LEN: usize = 20_000;
/// How long a stopped process is waited for in vain.
const STANDSTILL: Duration = Duration::from_secs(10);
const ANY: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// No retry; a timeout of 4.096 µs × 2^`timeout`.
fn attrs(timeout: u8) -> QpAttrs {
    let (timeout, retry) = (Some(timeout), Some(0));
    QpAttrs { mtu: Some(Mtu::B1024), timeout, retry, ..QpAttrs::default() }
}

fn random() -> Vec<u8> {
    let mut data = vec![0; LEN];
    rand::rng().fill_bytes(&mut data);
    data
}

/// Posts a WRITE of random bytes, which are returned.
fn post(mr: &Mr, port: &mut Port, to: Remote) -> Vec<u8> {
    let data = random();
    mr.region().write(0, &data).expect("inside");
    let from = sge(mr, 0, LEN as u32);
    port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
    data
}

fn links(kind: LinkKind) -> [Box<dyn Link>; 2] {
    [(); 2].map(|()| -> Box<dyn Link> {
        let config = UdpConfig::at(ANY.into());
        match kind {
            LinkKind::Shm => Box::new(Shm::bind(&config).expect("an address")),
            _ => Box::new(Udp::bind(&config).expect("an address")),
        }
    })
}

/// Steps both ends until the first has a completion. Its error.
fn both(net: &mut Net) -> Option<Syndrome> {
    for _ in 0..1_000_000 {
        net.a.nic.step();
        net.b.nic.step();
        if let [(_, error)] = net.a.port.sent()[..] {
            return error;
        }
        net.clock.advance(Duration::from_micros(1));
    }
    panic!("{:?} {:?}", net.a.nic.stats(), net.b.nic.stats());
}

/// Lets time pass for the first end alone, until it has a completion. When, and its error.
fn alone(net: &mut Net, limit: Duration) -> Option<(Duration, Option<Syndrome>)> {
    let start = net.clock.now();
    while net.clock.now() - start < limit {
        net.clock.advance(Duration::from_micros(500));
        net.a.nic.step();
        net.a.nic.step();
        if let [(_, error)] = net.a.port.sent()[..] {
            return Some((net.clock.now() - start, error));
        }
    }
    None
}

#[test]
fn an_engine_that_is_not_stepped_loses_nothing() {
    for kind in [LinkKind::Shm, LinkKind::Udp] {
        let [a, b] = links(kind);
        let mut net = Net::over(a, b, &PortConfig::default(), attrs(10)).expect("two NICs");
        for round in 0..3 {
            let to = remote(&net.b.mr, 0);
            let data = post(&net.a.mr, &mut net.a.port, to);
            net.a.nic.step();
            net.a.nic.step();
            let sent = net.a.nic.stats().net.sent;
            assert!(sent > 0);
            assert_eq!(alone(&mut net, Duration::from_secs(5)), None, "{kind}, round {round}");
            assert_eq!(net.a.nic.stats().net.sent, sent, "{kind}: sent again, round {round}");
            assert_eq!(both(&mut net), None, "{kind}");
            assert!(bytes(net.b.mr.region(), 0, LEN) == data, "{kind}, round {round}");
        }
    }
}

#[test]
fn an_engine_that_is_never_stepped_again_is_an_error() {
    for kind in [LinkKind::Shm, LinkKind::Udp] {
        let [a, b] = links(kind);
        let mut net = Net::over(a, b, &PortConfig::default(), attrs(10)).expect("two NICs");
        let to = remote(&net.b.mr, 0);
        post(&net.a.mr, &mut net.a.port, to);
        let (after, error) = alone(&mut net, 2 * STANDSTILL).expect("an end");
        assert!(after >= STANDSTILL, "{kind}: {after:?}");
        assert_eq!(error, Some(Syndrome::TransportRetryExc), "{kind}");
    }
}

/// The peer's engine runs and has no queue pair any more: its silence is that of a peer that is gone,
/// and not of one that waits for a processor.
#[test]
fn an_engine_without_queue_pairs_is_not_waited_for() {
    for kind in [LinkKind::Shm, LinkKind::Udp] {
        let [a, b] = links(kind);
        let mut net = Net::over(a, b, &PortConfig::default(), attrs(10)).expect("two NICs");
        let to = remote(&net.b.mr, 0);
        let reset = net.b.port.qp.modify(QpState::Reset, &QpAttrs::default());
        reset.expect("a queue pair may always be reset");
        post(&net.a.mr, &mut net.a.port, to);
        // Ends far before the time that a peer without a processor is given.
        assert_eq!(both(&mut net), Some(Syndrome::TransportRetryExc), "{kind}");
    }
}

/// A process that runs, and what is connected to it; `timeout` is this end's.
fn pair(kind: LinkKind, timeout: u8) -> (Host, Peer, Port) {
    let any = SocketAddr::from(ANY);
    let (own, mut peer) = (host(kind, any, true), Peer::start(kind, any));
    let port = connect_with(&own, &mut peer, attrs(timeout));
    (own, peer, port)
}

#[test]
fn a_process_that_was_stopped_goes_on() {
    for kind in [LinkKind::Shm, LinkKind::Udp, LinkKind::Auto] {
        let (own, peer, mut port) = pair(kind, 10);
        for _ in 0..2 {
            let data = post(&own.mr, &mut port, peer.memory);
            assert_eq!(completion(&own.nic, &mut port), None, "{kind}");
            peer.signal("STOP");
            let other =
                post(&own.mr, &mut port, Remote { addr: peer.memory.addr + 30_000, ..peer.memory });
            // More than a hundred times the timeout of 4 ms.
            let end = Instant::now() + Duration::from_secs(1);
            while Instant::now() < end {
                own.nic.step();
                assert_eq!(port.poll_send(), None, "{kind}");
            }
            peer.signal("CONT");
            assert_eq!(completion(&own.nic, &mut port), None, "{kind}");
            for (data, at) in [(data, 0), (other, 30_000)] {
                let from = Remote { addr: peer.memory.addr + at, ..peer.memory };
                let to = sge(&own.mr, 0, LEN as u32);
                port.post_wqe(|buf, at| WqeBuilder::read(buf, at, from).sge(to).signaled());
                assert_eq!(completion(&own.nic, &mut port), None, "{kind}");
                assert!(bytes(own.mr.region(), 0, LEN) == data, "{kind}");
            }
        }
    }
}

/// Its timeout is more than two hours.
#[test]
fn a_process_that_was_killed_is_an_error_at_once() {
    for kind in [LinkKind::Shm, LinkKind::Udp, LinkKind::Auto] {
        let (own, mut peer, mut port) = pair(kind, 31);
        post(&own.mr, &mut port, peer.memory);
        assert_eq!(completion(&own.nic, &mut port), None, "{kind}");
        peer.signal("STOP");
        post(&own.mr, &mut port, peer.memory);
        // Under way, and its packets are watched.
        let sent = own.nic.stats().net.sent;
        while own.nic.stats().net.sent == sent {
            own.nic.step();
        }
        peer.child.kill();
        let error = completion(&own.nic, &mut port);
        assert_eq!(error, Some(Syndrome::TransportRetryExc), "{kind}");
    }
}

/// A link is made where another one has just ended, which was met and is remembered.
#[test]
fn a_successor_is_not_taken_for_the_one_that_ended() {
    for kind in [LinkKind::Shm, LinkKind::Udp, LinkKind::Auto] {
        let own = host(kind, ANY.into(), false);
        let mut at = SocketAddr::from(ANY);
        for round in 0..3 {
            let other = host(kind, at, false);
            at = other.nic.local_addr().expect("a link");
            let mut port = own.another();
            let from = own.nic.local_addr().expect("a link");
            connect_over(&other.port, from, port.qp.qpn(), attrs(14));
            connect_over(&port, at, other.port.qp.qpn(), attrs(14));
            let data = post(&own.mr, &mut port, remote(&other.mr, 0));
            // A timer runs out, and it is looked whether the peer has ended.
            let end = Instant::now() + Duration::from_millis(20);
            while Instant::now() < end {
                own.nic.step();
            }
            let engine = other.nic.spawn().expect("a thread");
            assert_eq!(completion(&own.nic, &mut port), None, "{kind}, round {round}");
            assert!(bytes(other.mr.region(), 0, LEN) == data, "{kind}, round {round}");
            drop(engine);
            drop(other);
            post(&own.mr, &mut port, Remote { addr: 0, rkey: warpverbs_mlx5::num::Rkey(1) });
            let error = completion(&own.nic, &mut port);
            assert_eq!(error, Some(Syndrome::TransportRetryExc), "{kind}, round {round}");
        }
    }
}
