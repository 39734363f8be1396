//! NICs of several processes at one address and port.

use rand::Rng;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use warpverbs_dev::{Child, Host, Port, bytes, connect_over, say, sge, until};
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Remote, WqeBuilder};
use warpverbs_nic::link::{Link, QpnPart, Shm, Udp};
use warpverbs_nic::{Config, LinkKind, Mtu, QpAttrs, SoftNic, UdpConfig};

/// The variable that makes the test a [`process`]: the kind of its link, and its address.
const PROCESS: &str = "WARPVERBS_TEST_SHARED_PORT";
const LEN: usize = 20_000;

pub(super) fn host(kind: LinkKind, bind: SocketAddr, shared: bool) -> Host {
    let config = UdpConfig { shared, ..UdpConfig::at(bind) };
    Host::new(Config { link: kind.at(config), ..Config::default() })
}

fn attrs() -> QpAttrs {
    let (timeout, retry) = (Some(14), Some(7));
    QpAttrs { mtu: Some(Mtu::B1024), timeout, retry, ..QpAttrs::default() }
}

/// Gives up after about 10 ms.
fn hasty() -> QpAttrs {
    QpAttrs { timeout: Some(8), ..attrs() }
}

/// The part of the other processes: connects its port to whoever is named, and lives until its
/// input ends.
#[test]
fn process() {
    let Ok(what) = std::env::var(PROCESS) else { return };
    let (kind, bind) = what.split_once(' ').expect("two words");
    let host = host(kind.parse().expect("a kind"), bind.parse().expect("an address"), true);
    let _engine = host.nic.spawn().expect("a thread");
    let (qp, mr) = (&host.port.qp, &host.mr);
    let at = host.nic.local_addr().expect("a link");
    say(format_args!("{at} {} {} {}", qp.qpn(), mr.rkey(), mr.region().addr()));
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        match line.split_once(' ') {
            Some((address, qpn)) => {
                let (address, qpn) = (address.parse().expect("one"), qpn.parse().expect("one"));
                connect_over(&host.port, address, qpn, attrs());
                say("connected");
            }
            None => say(host.nic.stats().net.unknown_qp),
        }
    }
}

/// Another process.
pub(super) struct Peer {
    pub(super) child: Child,
    pub(super) at: SocketAddr,
    pub(super) qpn: u32,
    pub(super) memory: Remote,
}

impl Peer {
    pub(super) fn start(kind: LinkKind, bind: SocketAddr) -> Self {
        Self::of(Child::of_test("shared_port::process", PROCESS, format!("{kind} {bind}")))
    }

    /// In a PID namespace of its own.
    fn contained(kind: LinkKind, bind: SocketAddr) -> Self {
        let program = std::env::current_exe().expect("a program");
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child"]).arg(program);
        unshare.args(["shared_port::process", "--exact", "--nocapture"]);
        Self::of(Child::start(unshare.env(PROCESS, format!("{kind} {bind}"))))
    }

    fn of(mut child: Child) -> Self {
        let hello = child.said();
        let words: Vec<&str> = hello.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        Self {
            child,
            at: words[0].parse().expect("an address"),
            qpn: number(1) as u32,
            memory: Remote { addr: number(3), rkey: Rkey(number(2) as u32) },
        }
    }

    fn connect(&mut self, to: SocketAddr, qpn: u32) {
        assert_eq!(self.child.ask(format!("{to} {qpn}")), "connected");
    }

    /// Packets that came for QPs which it does not have.
    fn unknown(&mut self) -> u64 {
        self.child.ask("stats").parse().expect("a number")
    }

    fn part(&self) -> QpnPart {
        QpnPart::of(self.qpn)
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(kill.expect("a program").success());
        if name == "STOP" {
            warpverbs_dev::await_stopped(self.child.id());
        }
    }
}

/// The error of the next completion of `port`, while the NIC is driven here.
pub(super) fn completion(nic: &SoftNic, port: &mut Port) -> Option<Syndrome> {
    until(|| {
        nic.step();
        port.only_sent()
    })
}

/// A port of `own` that is connected to `peer` in both directions.
fn connect(own: &Host, peer: &mut Peer) -> Port {
    connect_with(own, peer, attrs())
}

/// Likewise, with other attributes of the port.
pub(super) fn connect_with(own: &Host, peer: &mut Peer, attrs: QpAttrs) -> Port {
    let port = own.another();
    peer.connect(own.nic.local_addr().expect("a link"), port.qp.qpn());
    connect_over(&port, peer.at, peer.qpn, attrs);
    port
}

/// Random bytes to `peer` and back.
fn exchange(own: &Host, port: &mut Port, peer: &Peer) {
    let mut data = vec![0; LEN];
    rand::rng().fill_bytes(&mut data);
    let region = own.mr.region();
    region.write(0, &data).expect("inside");
    region.write(LEN as u64, &vec![0; LEN]).expect("inside");
    let (from, to) = (sge(&own.mr, 0, LEN as u32), sge(&own.mr, LEN as u64, LEN as u32));
    port.post_wqe(|buf, at| WqeBuilder::write(buf, at, peer.memory).sge(from).signaled());
    assert_eq!(completion(&own.nic, port), None);
    port.post_wqe(|buf, at| WqeBuilder::read(buf, at, peer.memory).sge(to).signaled());
    assert_eq!(completion(&own.nic, port), None);
    assert!(bytes(region, LEN as u64, LEN) == data);
}

/// Nobody answers for QP `qpn` at `at`.
fn nobody(own: &Host, at: SocketAddr, qpn: u32) {
    let mut port = own.another();
    connect_over(&port, at, qpn, hasty());
    let (to, from) = (Remote { addr: 0, rkey: Rkey(1) }, sge(&own.mr, 0, 8));
    port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
    assert_eq!(completion(&own.nic, &mut port), Some(Syndrome::TransportRetryExc));
}

/// Processes come, are killed and are followed by others, while `own` talks to all of them.
fn come_and_go(kind: LinkKind, shares: bool) {
    let mut a = Peer::start(kind, ([127, 0, 0, 1], 0).into());
    let at = a.at;
    let mut b = Peer::start(kind, at);
    let own = match shares {
        true => host(kind, at, true),
        false => host(kind, ([127, 0, 0, 1], 0).into(), false),
    };
    assert_eq!(own.nic.local_addr() == Some(at), shares);
    assert_ne!(a.part(), b.part());
    let (mut to_a, mut to_b) = (connect(&own, &mut a), connect(&own, &mut b));
    for _ in 0..3 {
        exchange(&own, &mut to_a, &a);
        exchange(&own, &mut to_b, &b);
    }
    // A number that is in b's part, but no QP's: b alone gets its packets.
    let before = [a.unknown(), b.unknown()];
    nobody(&own, at, b.part().numbers().find(|qpn| *qpn != b.qpn).expect("others"));
    assert_eq!(a.unknown(), before[0]);
    // Its engine may not have run meanwhile.
    until(|| (b.unknown() > before[1]).then_some(()));
    // Of a part that nobody has.
    nobody(&own, at, QpnPart::new(QpnPart::COUNT - 1).numbers().start);
    assert_eq!(a.unknown(), before[0]);

    let part = a.part();
    drop(a);
    nobody(&own, at, part.numbers().start);
    exchange(&own, &mut to_b, &b);
    let mut c = Peer::start(kind, at);
    assert_eq!((c.at, c.part()), (at, part), "the first place is free again");
    let mut to_c = connect(&own, &mut c);
    exchange(&own, &mut to_c, &c);
    exchange(&own, &mut to_b, &b);
    // One that is stopped holds up nobody.
    c.signal("STOP");
    let mut stopped = Peer::start(kind, at);
    exchange(&own, &mut connect(&own, &mut stopped), &stopped);
    exchange(&own, &mut to_b, &b);
    c.signal("CONT");
    drop(stopped);
    // Now nobody is left who was there when the port was made.
    drop(b);
    exchange(&own, &mut to_c, &c);
    let mut d = Peer::start(kind, at);
    let mut to_d = connect(&own, &mut d);
    exchange(&own, &mut to_d, &d);
    exchange(&own, &mut to_c, &c);
}

#[test]
fn processes_share_a_port_by_udp() {
    come_and_go(LinkKind::Udp, false);
}

#[test]
fn processes_at_a_shared_port_reach_each_other_by_udp() {
    come_and_go(LinkKind::Udp, true);
}

#[test]
fn processes_share_an_address_by_shared_memory() {
    come_and_go(LinkKind::Shm, false);
    come_and_go(LinkKind::Shm, true);
}

#[test]
fn processes_share_a_port_by_both_links() {
    come_and_go(LinkKind::Auto, false);
    come_and_go(LinkKind::Auto, true);
}

/// As containers are that share a network and a user: none of the three can see the others, but that this one
/// sees the processes that it has started.
#[test]
fn processes_of_several_pid_namespaces_share_an_address() {
    let made = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: needs the right to make namespaces of processes");
    }
    for kind in [LinkKind::Udp, LinkKind::Shm] {
        let mut first = Peer::contained(kind, ([127, 0, 0, 1], 0).into());
        let own = host(kind, first.at, true);
        let mut second = Peer::contained(kind, first.at);
        assert_eq!((own.nic.local_addr(), second.at), (Some(first.at), first.at));
        for peer in [&mut first, &mut second] {
            exchange(&own, &mut connect(&own, peer), peer);
        }
    }
}

fn shared(bind: SocketAddr) -> UdpConfig {
    UdpConfig { shared: true, ..UdpConfig::at(bind) }
}

#[test]
fn a_place_is_free_when_its_link_is_dropped() {
    let first = Udp::bind(&shared(([127, 0, 0, 1], 0).into())).expect("a port");
    let at = shared(first.local());
    let part = |link: &Udp| link.qpn_part().expect("shared").index();
    let mut second = Udp::bind(&at).expect("a place");
    assert_eq!([part(&first), part(&second)], [0, 1]);
    // A packet that came for the last link at a place does not reach the next one.
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let packet = |qpn: u32| [[0; 4], qpn.to_be_bytes()].concat();
    peer.send_to(&packet(0), first.local()).expect("sent");
    drop(first);
    // A child that another test starts has all descriptors until it executes its program.
    let mut third = until(|| Udp::bind(&at).ok().filter(|third| part(third) == 0));
    for (link, qpn) in [(&mut third, QpnPart::new(0)), (&mut second, QpnPart::new(1))] {
        let qpn = qpn.numbers().start;
        peer.send_to(&packet(qpn), at.bind).expect("sent");
        let mut found = Vec::new();
        until(|| {
            link.receive(Duration::ZERO, &mut |arrival| found.push(arrival.bytes.to_vec()));
            (found == [packet(qpn)]).then_some(())
        });
    }
    drop((second, third));
    // Nobody shares it any more: the port is anybody's.
    until(|| Udp::bind(&UdpConfig::at(at.bind)).ok());
}

#[test]
fn an_address_has_64_places() {
    let first = Shm::bind(&shared(([127, 0, 0, 1], 0).into())).expect("an address");
    let at = shared(first.local());
    let mut links = vec![first];
    links.extend((1..64).map(|_| Shm::bind(&at).expect("a place")));
    let parts: Vec<_> = links.iter().map(|link| link.qpn_part().map(QpnPart::index)).collect();
    assert!(parts.into_iter().eq((0..64).map(Some)));
    let error = Shm::bind(&at).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    drop(links.remove(17));
    assert_eq!(Shm::bind(&at).expect("a place").qpn_part(), Some(QpnPart::new(17)));
}
