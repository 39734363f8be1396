//! Datagrams in queues of bnxt_re and ionic, to queues of every format: two NICs over a cable.

use crate::formats::request;
use crate::rng;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::net::IpAddr;
use warpverbs_dev::{
    PortConfig, Poster, QueueFormat, Reported, addresses, bytes, remote, rest, sge,
};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_nic::link::cable;
use warpverbs_nic::{
    AddressHandle, Config, FormatViolation, Mr, Pd, QpAttrs, QpState, Rule, Service, SoftNic,
    Status,
};
use warpverbs_rdma::{Addressed, Data, Op, Qpn, ReceivedKind, SendFlags};

const QKEY: u32 = 0x1234_5678;
/// Bytes of a route header before each datagram.
const GRH: usize = 40;
const LEN: usize = 1 << 13;

struct End {
    nic: SoftNic,
    pd: Pd,
    mr: Mr,
    poster: Poster,
}

impl End {
    fn new(nic: SoftNic, format: QueueFormat) -> Self {
        let pd = nic.alloc_pd();
        let mr = nic.reg_mr(&pd, &HostBuf::region(LEN).unwrap(), Access::all()).unwrap();
        let port = PortConfig { service: Service::Datagram, ..PortConfig::default() };
        let poster = Poster::with(&nic, &pd, [format; 2], &port).unwrap();
        let mut end = Self { nic, pd, mr, poster };
        end.restart();
        end
    }

    fn restart(&mut self) {
        let init = QpAttrs { qkey: Some(QKEY), ..QpAttrs::default() };
        let rts = QpAttrs { sq_psn: Some(0xff_fff0), ..QpAttrs::default() };
        self.poster.connect(&init, &QpAttrs::default(), &rts);
        while self.poster.poll_send().is_some() || self.poster.poll_recv().is_some() {}
    }

    fn gid(&self) -> [u8; 16] {
        match self.nic.local_addr().unwrap().ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }

    /// The QP of `peer` behind a handle.
    fn to(&self, peer: &Self) -> (AddressHandle, Addressed) {
        let ah = self.nic.create_ah(&self.pd, peer.gid()).unwrap();
        let (handle, qpn) = (ah.number(), Qpn::new(peer.poster.qp.qpn()).unwrap());
        (ah, Addressed { handle, qpn, qkey: QKEY })
    }
}

fn pair(a: QueueFormat, b: QueueFormat) -> (End, End) {
    let (here, there) = addresses();
    let (one, other) = cable(here, there);
    let nic = |link| SoftNic::with_link(Config::default(), Box::new(link)).unwrap();
    (End::new(nic(one), a), End::new(nic(other), b))
}

/// Those whose WQEs name addresses by numbers.
fn numbered() -> impl Iterator<Item = QueueFormat> {
    QueueFormat::ALL.into_iter().filter(|format| *format != QueueFormat::Mlx5)
}

/// So many that rings and CQs begin anew several times.
fn many(a: &mut End, b: &mut End, rng: &mut StdRng) {
    let (_ah, to) = a.to(b);
    let source = a.poster.qp.qpn();
    for nth in 0..400u64 {
        let mut data = vec![0; [0, 1, 31, 32, 1000, 1024][rng.random_range(0..6)]];
        rng.fill_bytes(&mut data);
        let at = rng.random_range(0..4096u64);
        a.mr.region().write(at, &data).unwrap();
        let half = data.len() as u32 / 2;
        let rest_of = sge(&a.mr, at + u64::from(half), data.len() as u32 - half);
        let sges = [sge(&a.mr, at, half), rest_of];
        let carried = match data.len() <= 32 && rng.random() {
            true => Data::Inline(&data),
            false => Data::Sges(&sges),
        };
        let (op, kind) = match rng.random::<bool>().then(|| rng.next_u32()) {
            Some(imm) => (Op::SendImm(imm), ReceivedKind::SendImm(imm)),
            None => (Op::Send, ReceivedKind::Send),
        };
        // A completion of bnxt_re is for all before it, too.
        let signaled = nth % 3 == 2;
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::UNSIGNALED };
        b.mr.region().fill(0, LEN, 0xc3).unwrap();
        b.poster.post_recv(&[sge(&b.mr, 0, (GRH + data.len()) as u32)]);
        a.poster.post_to(to, &request(op, carried, flags));
        rest([&a.nic, &b.nic]);
        let each = matches!(a.poster.format, QueueFormat::IonicV1 | QueueFormat::IonicV2);
        let sent = Reported::Sent { count: nth + 1, status: Status::Success };
        assert_eq!(a.poster.poll_send(), (signaled || each).then_some(sent), "{nth}");
        let len = (GRH + data.len()) as u32;
        let arrived = Reported::Datagram { kind, len, source, status: Status::Success };
        assert_eq!(b.poster.poll_recv(), Some(arrived), "{nth}");
        assert_eq!(bytes(b.mr.region(), GRH as u64, data.len()), data, "{nth}");
        let behind = LEN - len as usize;
        assert_eq!(bytes(b.mr.region(), len.into(), behind), vec![0xc3; behind], "{nth}");
    }
    assert_eq!([&a.nic, &b.nic].map(SoftNic::take_violations), [vec![], vec![]]);
}

#[test]
fn datagrams_go_to_address_handles_in_every_format() {
    let (seed, mut rng) = rng();
    println!("WARPVERBS_SEED={seed}");
    for (from, to) in numbered().flat_map(|from| QueueFormat::ALL.map(|to| (from, to))) {
        println!("{from:?} to {to:?}");
        let (mut a, mut b) = pair(from, to);
        many(&mut a, &mut b, &mut rng);
        a.restart();
        b.restart();
        many(&mut a, &mut b, &mut rng);
    }
}

/// The whole queue stops, whose rest the library flushes.
#[test]
fn what_cannot_be_sent_is_named() {
    for format in numbered() {
        let (mut a, b) = pair(format, QueueFormat::Mlx5);
        let (ah, to) = a.to(&b);
        let other = a.nic.alloc_pd();
        let foreign = a.nic.create_ah(&other, b.gid()).unwrap();
        let foreign_number = foreign.number();
        let nowhere = a.nic.create_ah(&a.pd, [0; 16]).unwrap();
        let unknown = |handle| Rule::Format(FormatViolation::AddressHandle { handle });
        for (handle, expected) in [
            (foreign_number, Some(unknown(foreign_number))),
            (0xf_ffff, Some(unknown(0xf_ffff))),
            (nowhere.number(), Some(Rule::DatagramAddress { gid: [0; 16] })),
        ] {
            let send = request(Op::Send, Data::Inline(b"x"), SendFlags::SIGNALED);
            a.poster.post_to(Addressed { handle, ..to }, &send);
            rest([&a.nic, &b.nic]);
            let failed = Reported::Sent { count: 1, status: Status::LocalQpOperation };
            assert_eq!(a.poster.poll_send(), Some(failed), "{format:?} {handle:#x}");
            assert_eq!(a.poster.poll_send(), Some(Reported::Ended), "{format:?}");
            assert_eq!(a.poster.qp.state(), QpState::Err);
            assert_eq!(a.nic.take_violations().pop().map(|found| found.rule), expected);
            a.restart();
        }
        // No datagram.
        let op = Op::Write(remote(&b.mr, 0));
        a.poster.post(&request(op, Data::Inline(b"x"), SendFlags::SIGNALED));
        rest([&a.nic, &b.nic]);
        let failed = Reported::Sent { count: 1, status: Status::LocalQpOperation };
        assert_eq!(a.poster.poll_send(), Some(failed), "{format:?}");
        a.restart();
        // Its number is unknown once the handle is gone, and the next one has it.
        drop(ah);
        a.poster.post_to(to, &request(Op::Send, Data::Inline(b"x"), SendFlags::SIGNALED));
        rest([&a.nic, &b.nic]);
        assert_eq!(a.poster.poll_send(), Some(failed), "{format:?}");
        assert_eq!(b.nic.stats().net.received, 0);
        assert_eq!(a.to(&b).1.handle, to.handle);
    }
}
