//! QPs of unreliable datagrams: two NICs over a cable.

use crate::ignored::scramble;
use rand::RngExt;
use std::net::{IpAddr, SocketAddr};
use warpverbs_dev::{Host, PortConfig, Receives, addresses, bytes, pattern, rest, sge};
use warpverbs_mem::Access;
use warpverbs_mlx5::cqe::{Cqe, DatagramSource, ReceivedKind};
use warpverbs_mlx5::num::{MAX_WQE, Qpn};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Destination, WqeBuilder, WqeViolation};
use warpverbs_nic::link::cable;
use warpverbs_nic::{
    Config, ModifyError, QpAttrs, QpState, Rule, Service, SoftNic, SrqConfig, SrqOrder,
};
use warpverbs_wire::{Layout, ipv4, ipv6};

const QKEY: u32 = 0x1234_5678;

fn ports() -> PortConfig {
    PortConfig { service: Service::Datagram, ..PortConfig::default() }
}

fn ready(host: &Host, qkey: u32) {
    let qp = &host.port.qp;
    qp.modify(QpState::Init, &QpAttrs { qkey: Some(qkey), ..QpAttrs::default() }).unwrap();
    qp.modify(QpState::Rtr, &QpAttrs::default()).unwrap();
    let attrs = QpAttrs { sq_psn: Some(0xff_ffff), ..QpAttrs::default() };
    qp.modify(QpState::Rts, &attrs).unwrap();
}

fn pair_at(a: SocketAddr, b: SocketAddr) -> (Host, Host) {
    let (at_a, at_b) = cable(a, b);
    let nic = |link| SoftNic::with_link(Config::default(), link).unwrap();
    let a = Host::on(nic(Box::new(at_a)), &ports()).unwrap();
    let b = Host::on(nic(Box::new(at_b)), &ports()).unwrap();
    ready(&a, 0x111);
    ready(&b, QKEY);
    (a, b)
}

fn pair() -> (Host, Host) {
    let (a, b) = addresses();
    pair_at(a, b)
}

fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn to(host: &Host) -> Destination {
    Destination {
        qpn: Qpn::new(host.port.qp.qpn()).unwrap(),
        qkey: QKEY,
        gid: gid(host.nic.local_addr().unwrap().ip()),
        traffic_class: 0,
        hop_limit: 64,
    }
}

#[test]
fn datagrams_arrive_behind_their_ip_header() {
    let v6 = |n: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, n], 4791));
    let (a4, b4) = addresses();
    for (a, b) in [(a4, b4), (v6(1), v6(2))] {
        let (mut a, mut b) = pair_at(a, b);
        for (nth, len) in [0usize, 1, 8, 100, 4096].into_iter().enumerate() {
            let data = pattern(len, 1);
            a.mr.region().write(0, &data).unwrap();
            b.port.post_recv(&[sge(&b.mr, 0, 20), sge(&b.mr, 1000, 20), sge(&b.mr, 2000, 4096)]);
            // The last two begin in the WQE.
            let head = if len < 100 { 0 } else { 13 };
            let (peer, from) = (to(&b), sge(&a.mr, head as u64, (len - head) as u32));
            a.port.post_wqe(|buf, at| {
                let wqe = WqeBuilder::send_imm_to(buf, at, peer, 7 + nth as u32).signaled();
                let wqe = if head == 0 { wqe } else { wqe.inline(&data[..head]) };
                if len == 0 { wqe } else { wqe.sge(from) }
            });
            rest([&a.nic, &b.nic]);
            assert!(matches!(a.port.sent()[..], [(_, None)]));
            let source = DatagramSource {
                qpn: Qpn::new(a.port.qp.qpn()).unwrap(),
                ipv6: a.nic.local_addr().unwrap().is_ipv6(),
            };
            let arrived = b.port.poll_recv();
            let expected = Cqe::Receive {
                qpn: Qpn::new(b.port.qp.qpn()).unwrap(),
                wqe_counter: nth as u16,
                kind: ReceivedKind::SendImm(7 + nth as u32),
                byte_cnt: 40 + len as u32,
                srqn: 0,
                solicited: false,
                from: Some(source),
            };
            assert_eq!(arrived, Some(expected));
            let grh = [bytes(b.mr.region(), 0, 20), bytes(b.mr.region(), 1000, 20)].concat();
            check_header(&grh, &a, &b, len);
            assert_eq!(bytes(b.mr.region(), 2000, len), data);
        }
        assert_eq!(b.nic.stats().net.received, 5);
    }
}

/// The header names both ends, and how long the packet was: UDP, BTH, DETH, immediate, ICRC.
fn check_header(grh: &[u8], a: &Host, b: &Host, len: usize) {
    let ends = [a, b].map(|host| host.nic.local_addr().unwrap().ip());
    let segment = 8 + 12 + 8 + 4 + len.next_multiple_of(4) + 4;
    match ends {
        [IpAddr::V4(_), _] => {
            assert_eq!(grh[..20], [0; 20]);
            let ip = ipv4::Repr::parse(ipv4::Header::view(&grh[20..]).unwrap().0).unwrap();
            assert_eq!([IpAddr::from(ip.src), IpAddr::from(ip.dst)], ends);
            assert_eq!(usize::from(u16::from_be_bytes([grh[22], grh[23]])), 20 + segment);
        }
        [IpAddr::V6(_), _] => {
            let ip = ipv6::Repr::parse(ipv6::Header::view(grh).unwrap().0).unwrap();
            assert_eq!([IpAddr::from(ip.src), IpAddr::from(ip.dst)], ends);
            assert_eq!(usize::from(u16::from_be_bytes([grh[4], grh[5]])), segment);
        }
    }
}

#[test]
fn a_datagram_without_a_receive_is_lost() {
    let (mut a, b) = pair();
    let memory = |len| warpverbs_mem::HostBuf::region(len).unwrap();
    let (buf, dbr) = (memory(64 * 4), memory(64));
    let config = SrqConfig {
        dialect: warpverbs_nic::Dialect::Mlx5,
        order: SrqOrder::Linked,
        buf: buf.clone(),
        log_size: 2,
        log_stride: 6,
        dbr: dbr.clone(),
    };
    let srq = b.nic.create_srq(&b.pd, &config).unwrap();
    let shared = PortConfig { receives: Receives::Shared(srq), ..ports() };
    let mut b = Host { port: warpverbs_dev::Port::new(&b.nic, &b.pd, &shared).unwrap(), ..b };
    ready(&b, QKEY);
    let peer = to(&b);
    a.port.post_wqe(|buf, at| WqeBuilder::send_to(buf, at, peer).inline(b"lost").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(a.port.sent(), [(0, None)], "nobody answers for it");
    assert_eq!((b.port.poll_recv(), b.nic.stats().net.no_receive), (None, 1));
}

#[test]
fn queue_keys_decide() {
    let (mut a, mut b) = pair();
    let mut send = |a: &mut Host, qkey: u32| {
        b.port.post_recv(&[sge(&b.mr, 0, 100)]);
        let peer = Destination { qkey, ..to(&b) };
        a.port.post_wqe(|buf, at| WqeBuilder::send_to(buf, at, peer).inline(b"hello").signaled());
        rest([&a.nic, &b.nic]);
        assert!(matches!(a.port.sent()[..], [(_, None)]));
        (b.port.poll_recv().is_some(), b.nic.stats().net.wrong_qkey)
    };
    assert_eq!(send(&mut a, QKEY), (true, 0));
    assert_eq!(send(&mut a, QKEY + 1), (false, 1));
    // Bit 31: the sender's own, which is 0x111.
    assert_eq!(send(&mut a, QKEY | 1 << 31), (false, 2));
    let attrs = QpAttrs { qkey: Some(QKEY), ..QpAttrs::default() };
    a.port.qp.modify(QpState::Rts, &attrs).unwrap();
    assert_eq!(send(&mut a, 1 << 31), (true, 2));
}

#[test]
fn a_qp_reaches_others_of_its_nic_and_itself() {
    let (mut a, b) = pair();
    let attrs = QpAttrs { qkey: Some(QKEY), ..QpAttrs::default() };
    a.port.qp.modify(QpState::Rts, &attrs).unwrap();
    a.port.post_recv(&[sge(&a.mr, 0, 100)]);
    let own = to(&a);
    a.port.post_wqe(|buf, at| WqeBuilder::send_to(buf, at, own).inline(b"myself").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(a.port.sent(), [(0, None)]);
    assert!(matches!(a.port.poll_recv(), Some(Cqe::Receive { byte_cnt: 46, .. })));
    assert_eq!(bytes(a.mr.region(), 40, 6), b"myself");
    assert_eq!(b.nic.stats().net.received, 0);
}

/// Sends alone stop, and go on when the user says so.
#[test]
fn a_datagram_that_cannot_be_sent_is_an_error_of_its_sender() {
    let (mut a, b) = pair();
    let (good, from) = (to(&b), sge(&a.mr, 0, 5000));
    let far = Destination { gid: gid("fd00::1".parse().unwrap()), ..good };
    let nowhere = Destination { gid: gid("0.0.0.0".parse().unwrap()), ..good };
    for (nth, (peer, len, expected)) in (0..).zip([
        (good, 4097, Syndrome::LocalLength),
        (far, 8, Syndrome::LocalQpOp),
        (nowhere, 8, Syndrome::LocalQpOp),
    ]) {
        let from = warpverbs_mlx5::wqe::Sge { len, ..from };
        a.port.post_wqe(|buf, at| WqeBuilder::send_to(buf, at, peer).sge(from).signaled());
        rest([&a.nic, &b.nic]);
        // Each takes two WQEBBs.
        assert_eq!(a.port.sent(), [(2 * nth, Some(expected))]);
        assert_eq!(a.port.qp.state(), QpState::Sqe);
        a.port.qp.modify(QpState::Rts, &QpAttrs::default()).unwrap();
    }
    let violations = a.nic.take_violations();
    assert!(matches!(violations[1].rule, Rule::DatagramAddress { .. }), "{violations:?}");
    assert!(violations[1].to_string().contains("fd00::1"), "{}", violations[1]);
    assert_eq!(b.nic.stats().net.received, 0);
}

#[test]
fn work_that_is_no_datagram_is_named() {
    let (mut a, b) = pair();
    let remote = warpverbs_dev::remote(&b.mr, 0);
    a.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, remote).inline(b"x").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(a.port.sent(), [(0, Some(Syndrome::LocalQpOp))]);
    let rule = a.nic.take_violations()[0].rule;
    let opcode = warpverbs_mlx5::opcode::SendOpcode::RdmaWrite;
    assert!(
        matches!(rule, Rule::Wqe(WqeViolation::UnsupportedOpcode { opcode: found }) if found == opcode)
            || matches!(rule, Rule::Wqe(WqeViolation::Opmod { .. })),
        "{rule}"
    );
    a.port.qp.modify(QpState::Rts, &QpAttrs::default()).unwrap();
    // A SEND without an address vector, and one whose vector is of another form.
    a.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"x").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(a.port.sent(), [(1, Some(Syndrome::LocalQpOp))]);
    a.port.qp.modify(QpState::Rts, &QpAttrs::default()).unwrap();
    let peer = to(&b);
    let mut wqe = [0; MAX_WQE];
    let built = WqeBuilder::send_to(&mut wqe, a.port.position(), peer).inline(b"x").signaled();
    let len = built.finish().unwrap().len();
    wqe[16 + 8] = 0;
    a.port.put_bytes(&wqe[..len]);
    a.port.announce();
    rest([&a.nic, &b.nic]);
    assert_eq!(a.port.sent(), [(2, Some(Syndrome::LocalQpOp))]);
    let violations = a.nic.take_violations();
    let form = |rule| matches!(rule, Rule::Wqe(WqeViolation::AddressForm { ext: 0, .. }));
    assert!(form(violations[1].rule), "{violations:?}");
}

#[test]
fn a_receive_that_is_too_small_ends_its_qp() {
    let (mut a, mut b) = pair();
    b.port.post_recv(&[sge(&b.mr, 0, 44)]);
    b.port.post_recv(&[sge(&b.mr, 0, 100)]);
    let peer = to(&b);
    a.port.post_wqe(|buf, at| WqeBuilder::send_to(buf, at, peer).inline(b"five!").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(a.port.sent(), [(0, None)]);
    let ended = [(0, Some(Syndrome::LocalLength)), (1, Some(Syndrome::WrFlush))];
    assert_eq!(b.port.received(), ended);
    assert_eq!(b.port.qp.state(), QpState::Err);
    assert_eq!(bytes(b.mr.region(), 0, 44), [0; 44]);
    // To a QP in ERR, as to none.
    a.port.post_wqe(|buf, at| WqeBuilder::send_to(buf, at, peer).inline(b"five!").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(b.nic.stats().net.unknown_qp, 1);
}

#[test]
fn each_service_takes_its_own_packets() {
    let (mut a, b) = pair();
    let connected = Host::on(b.nic.clone(), &PortConfig::default()).unwrap();
    let peer = Destination { qpn: Qpn::new(connected.port.qp.qpn()).unwrap(), ..to(&b) };
    let at_a = a.nic.local_addr().unwrap();
    warpverbs_dev::connect_over(&connected.port, at_a, 5, QpAttrs::default());
    a.port.post_wqe(|buf, at| WqeBuilder::send_to(buf, at, peer).inline(b"no").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(connected.port.qp.state(), QpState::Rts);
    // A packet of a connection to a datagram QP.
    let other = Host::on(a.nic.clone(), &PortConfig::default()).unwrap();
    let at_b = b.nic.local_addr().unwrap();
    let attrs = QpAttrs { timeout: Some(0), ..QpAttrs::default() };
    warpverbs_dev::connect_over(&other.port, at_b, b.port.qp.qpn(), attrs);
    let mut other = other;
    other.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"no").signaled());
    rest([&a.nic, &b.nic]);
    assert_eq!(b.nic.stats().net.malformed, 1);
    assert_eq!(b.port.qp.state(), QpState::Rts);
}

#[test]
fn datagrams_need_a_link_and_their_attributes() {
    let nic = SoftNic::new(Config::default()).unwrap();
    let host = Host::on(nic, &ports()).unwrap();
    let qp = &host.port.qp;
    let rights = QpAttrs::init(Access::empty());
    assert!(matches!(qp.modify(QpState::Init, &rights), Err(ModifyError::Transition(_))));
    qp.modify(QpState::Init, &QpAttrs { qkey: Some(1), ..QpAttrs::default() }).unwrap();
    let refused = qp.modify(QpState::Rtr, &QpAttrs::default());
    assert_eq!(refused, Err(ModifyError::DatagramsNeedLink));
}

/// Round the ring many times, with garbage wherever devices do not look.
#[test]
fn bytes_that_nobody_looks_at_may_hold_anything() {
    let (_, mut rng) = crate::rng();
    let (mut a, mut b) = pair();
    let peer = to(&b);
    for nth in 0..2000_u64 {
        let len = rng.random_range(1..=300_usize);
        let data: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        // Behind what is in the WQE comes the rest.
        let head = rng.random_range(0..=len.min(100));
        let at = nth % 8 * 512;
        a.mr.region().write(at, &data).unwrap();
        b.port.post_recv(&[sge(&b.mr, at, 40 + 300)]);
        let mut wqe = [0; MAX_WQE];
        let built = WqeBuilder::send_to(&mut wqe, a.port.position(), peer).signaled();
        let built = if head == 0 { built } else { built.inline(&data[..head]) };
        let built = match len - head {
            0 => built,
            rest => built.sge(sge(&a.mr, at + head as u64, rest as u32)),
        };
        let wqebbs = built.finish().unwrap().len();
        scramble(&mut wqe[..wqebbs], true, || rng.random());
        a.port.put_bytes(&wqe[..wqebbs]);
        a.port.announce();
        rest([&a.nic, &b.nic]);
        assert!(matches!(a.port.sent()[..], [(_, None)]), "datagram {nth}");
        assert_eq!(b.port.received(), [(nth as u16, None)]);
        assert_eq!(bytes(b.mr.region(), at + 40, len), data, "datagram {nth}");
    }
    assert_eq!(a.nic.take_violations(), []);
}
