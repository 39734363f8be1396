//! Two NICs over each kind of link on this machine: every operation, bytes compared.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use warpverbs_dev::{Host, bytes, local, pattern, remote, sge, until};
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::wqe::{Position, WqeBuilder};
use warpverbs_nic::link::{Link, LinkError, NoChecksum, Udp, set_no_checksum};
use warpverbs_nic::{
    Config, LinkConfig, LinkKind, ModifyError, Mtu, NicError, Path, QpAttrs, QpState, SoftNic,
    UdpConfig,
};

fn host(ip: IpAddr) -> Host {
    host_on(LinkKind::Udp, ip)
}

fn host_on(kind: LinkKind, ip: IpAddr) -> Host {
    let link = kind.at(UdpConfig::at(SocketAddr::new(ip, 0)));
    Host::new(Config { link, ..Config::default() })
}

fn pair(ip: IpAddr, mtu: Mtu) -> (Host, Host) {
    connected(host(ip), host(ip), mtu)
}

fn connected(a: Host, b: Host, mtu: Mtu) -> (Host, Host) {
    let attrs = QpAttrs { mtu: Some(mtu), ..QpAttrs::default() };
    a.join(&b, attrs);
    (a, b)
}

/// Steps both NICs until `found` says something.
fn wait<T>(
    a: &mut Host,
    b: &mut Host,
    mut found: impl FnMut(&mut Host, &mut Host) -> Option<T>,
) -> T {
    until(|| {
        a.nic.step();
        b.nic.step();
        found(a, b)
    })
}

/// Posts one WQE at `a` and waits for its CQE.
fn done(
    a: &mut Host,
    b: &mut Host,
    build: impl for<'x> FnOnce(&'x mut [u8], Position) -> WqeBuilder<'x>,
) -> Cqe {
    a.port.post_wqe(build);
    wait(a, b, |a, _| a.port.poll_send())
}

fn succeeded(cqe: Cqe, expected: SendOpcode) {
    assert!(matches!(cqe, Cqe::Requester { opcode, .. } if opcode == expected), "{cqe:?}");
}

fn every_operation((mut a, mut b): (Host, Host)) -> [String; 2] {
    let (here, there) = (a.mr.region().clone(), b.mr.region().clone());
    for len in [1usize, 8, 1023, 1024, 4097, 20_000] {
        let data = pattern(len, len as u64);
        here.write(0, &data).unwrap();
        let (from, to) = (sge(&a.mr, 0, len as u32), remote(&b.mr, 100));
        let cqe =
            done(&mut a, &mut b, |buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
        succeeded(cqe, SendOpcode::RdmaWrite);
        assert_eq!(bytes(&there, 100, len), data, "WRITE of {len}");

        let (rest, to) = (sge(&a.mr, 1, len as u32 - 1), remote(&b.mr, 100));
        there.fill(100, len, 0).unwrap();
        let cqe = done(&mut a, &mut b, |buf, at| {
            let wqe = WqeBuilder::write(buf, at, to).inline(&data[..1]).signaled();
            if len == 1 { wqe } else { wqe.sge(rest) }
        });
        succeeded(cqe, SendOpcode::RdmaWrite);
        assert_eq!(bytes(&there, 100, len), data, "WRITE of {len}, in part from the WQE");

        let (back, source) = (sge(&a.mr, 30_000, len as u32), remote(&b.mr, 100));
        let cqe =
            done(&mut a, &mut b, |buf, at| WqeBuilder::read(buf, at, source).sge(back).signaled());
        succeeded(cqe, SendOpcode::RdmaRead);
        assert_eq!(bytes(&here, 30_000, len), data, "READ of {len}");

        b.port.post_recv(&[sge(&b.mr, 40_000, 500), sge(&b.mr, 41_000, 20_000)]);
        let cqe =
            done(&mut a, &mut b, |buf, at| WqeBuilder::send_imm(buf, at, 77).sge(from).signaled());
        succeeded(cqe, SendOpcode::SendImm);
        let arrived = wait(&mut a, &mut b, |_, b| b.port.poll_recv());
        assert!(
            matches!(arrived, Cqe::Receive { kind: ReceivedKind::SendImm(77), byte_cnt, .. }
                if byte_cnt as usize == len),
            "{arrived:?}"
        );
        let first = len.min(500);
        assert_eq!(bytes(&there, 40_000, first), data[..first]);
        assert_eq!(bytes(&there, 41_000, len - first), data[first..], "SEND of {len}");
    }
    atomics_and_immediate(&mut a, &mut b);
    assert_eq!((a.port.qp.state(), b.port.qp.state()), (QpState::Rts, QpState::Rts));
    assert!(a.nic.take_violations().is_empty() && b.nic.take_violations().is_empty());
    [a, b].map(|host| host.nic.describe_link().expect("a link"))
}

fn atomics_and_immediate(a: &mut Host, b: &mut Host) {
    let (here, there) = (a.mr.region().clone(), b.mr.region().clone());
    there.write(64, &40u64.to_le_bytes()).unwrap();
    let (word, result) = (remote(&b.mr, 64), local(&a.mr, 8));
    let cqe = done(a, b, |buf, at| WqeBuilder::fetch_add(buf, at, word, 2, result).signaled());
    succeeded(cqe, SendOpcode::AtomicFa);
    assert_eq!(bytes(&here, 8, 8), 40u64.to_le_bytes());
    let cqe =
        done(a, b, |buf, at| WqeBuilder::compare_swap(buf, at, word, 42, 7, result).signaled());
    succeeded(cqe, SendOpcode::AtomicCs);
    assert_eq!(bytes(&here, 8, 8), 42u64.to_le_bytes());
    assert_eq!(bytes(&there, 64, 8), 7u64.to_le_bytes());

    b.port.post_recv(&[sge(&b.mr, 0, 4)]);
    let to = remote(&b.mr, 200);
    let cqe = done(a, b, |buf, at| {
        WqeBuilder::write_imm(buf, at, to, 5).inline(b"in the WQE").signaled()
    });
    succeeded(cqe, SendOpcode::RdmaWriteImm);
    let arrived = wait(a, b, |_, b| b.port.poll_recv());
    assert!(
        matches!(arrived, Cqe::Receive { kind: ReceivedKind::WriteImm(5), byte_cnt: 10, .. }),
        "{arrived:?}"
    );
    assert_eq!(bytes(&there, 200, 10), b"in the WQE");
}

#[test]
fn every_operation_over_ipv4() {
    let links = every_operation(pair(Ipv4Addr::LOCALHOST.into(), Mtu::B1024));
    assert!(links.iter().all(|link| link.starts_with("UDP at 127.0.0.1:")), "{links:?}");
}

#[test]
fn every_operation_over_ipv6() {
    every_operation(pair(Ipv6Addr::LOCALHOST.into(), Mtu::B4096));
}

#[test]
fn every_operation_over_shared_memory() {
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let [a, b] = [(); 2].map(|()| host_on(LinkKind::Shm, ip));
        let links = every_operation(connected(a, b, Mtu::B4096));
        assert!(links.iter().all(|link| link.starts_with("shared memory at ")), "{links:?}");
    }
}

/// The peer decides: shared memory if it has it, UDP if not.
#[test]
fn every_operation_over_the_link_that_both_have() {
    let ip = Ipv4Addr::LOCALHOST.into();
    for (peer, expected) in [(LinkKind::Auto, "shared memory at "), (LinkKind::Udp, "UDP at ")] {
        let (a, b) = (host_on(LinkKind::Auto, ip), host_on(peer, ip));
        let links = every_operation(connected(a, b, Mtu::B4096));
        assert!(links.iter().all(|link| link.starts_with(expected)), "{links:?}");
        assert!(links.iter().all(|link| !link.contains("others")), "{links:?}");
    }
}

/// As Linux's `rdma_rxe` sends them, and as RoCEv2 allows.
#[test]
fn datagrams_without_a_udp_checksum_arrive_over_ipv6() {
    let bind = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let mut link = Udp::bind(&UdpConfig::at(bind)).unwrap();
    let sender = std::net::UdpSocket::bind(bind).unwrap();
    set_no_checksum(&sender, NoChecksum::Sent).unwrap();
    sender.send_to(b"unchecked", link.local()).unwrap();
    let mut received = Vec::new();
    until(|| {
        link.receive(Duration::ZERO, &mut |arrival| received = arrival.bytes.to_vec());
        (received == b"unchecked").then_some(())
    });
}

#[test]
fn many_writes_in_flight_both_ways() {
    let (mut a, mut b) = pair(Ipv4Addr::LOCALHOST.into(), Mtu::B4096);
    let (to_a, to_b) = (remote(&a.mr, 32_768), remote(&b.mr, 32_768));
    for (mr, salt) in [(&a.mr, 1), (&b.mr, 2)] {
        mr.region().write(0, &pattern(30_000, salt)).unwrap();
    }
    let (from_a, from_b) = (sge(&a.mr, 0, 30_000), sge(&b.mr, 0, 30_000));
    for _ in 0..40 {
        a.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to_b).sge(from_a).signaled());
        b.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to_a).sge(from_b).signaled());
    }
    let mut left = [40, 40];
    wait(&mut a, &mut b, |a, b| {
        for (port, left) in [&mut a.port, &mut b.port].into_iter().zip(&mut left) {
            while let Some(cqe) = port.poll_send() {
                succeeded(cqe, SendOpcode::RdmaWrite);
                *left -= 1;
            }
        }
        (left == [0, 0]).then_some(())
    });
    assert_eq!(bytes(b.mr.region(), 32_768, 30_000), pattern(30_000, 1));
    assert_eq!(bytes(a.mr.region(), 32_768, 30_000), pattern(30_000, 2));
}

#[test]
fn what_cannot_be_reached_is_said_at_once() {
    let a = host(Ipv4Addr::LOCALHOST.into());
    let local = a.nic.local_addr().unwrap();
    let qp = &a.port.qp;
    qp.modify(QpState::Init, &QpAttrs::init(warpverbs_mem::Access::empty())).unwrap();
    let peer = SocketAddr::from((Ipv6Addr::LOCALHOST, 4791));
    let refused = qp.modify(QpState::Rtr, &QpAttrs::rtr_to(peer, 9));
    assert_eq!(refused, Err(ModifyError::Unreachable { peer, local }));
    let lone = Host::new(Config::default());
    lone.port.qp.modify(QpState::Init, &QpAttrs::init(warpverbs_mem::Access::empty())).unwrap();
    let attrs = QpAttrs { path: Some(Path::Network(local)), ..QpAttrs::rtr(9) };
    let refused = lone.port.qp.modify(QpState::Rtr, &attrs);
    assert_eq!(refused, Err(ModifyError::NoLink { peer: local }));
}

#[test]
fn addresses_that_cannot_be_bound_are_named() {
    let open = |bind| {
        let link = LinkConfig::Udp(UdpConfig::at(bind));
        SoftNic::new(Config { link, ..Config::default() }).map(|_| ())
    };
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    assert_eq!(open(any), Err(NicError::Link(LinkError::UnspecifiedAddress { addr: any })));
    let taken = host(Ipv4Addr::LOCALHOST.into()).nic;
    let addr = taken.local_addr().unwrap();
    assert_eq!(
        open(addr),
        Err(LinkError::Open { addr, kind: std::io::ErrorKind::AddrInUse }.into())
    );
}
