//! Any datagram at all: memory outside of what was granted stays as it is, nothing is answered with
//! more than was asked for, and the NIC goes on.

use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs_dev::{Poster, QueueFormat, addresses, bytes, rest, sge};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_nic::link::{Cable, Link, cable};
use warpverbs_nic::{Clock, Config, CqMode, Mr, QpAttrs, QpState, SoftNic, VirtualClock};
use warpverbs_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Envelope, Extension, HeaderSet, Ieth, ImmDt, Ip, Msn,
    NakCode, Opcode, Pkey, Psn, Qpn, Reth, Rkey, Syndrome, Transport, Udp, icrc,
};

/// Of the granted region, in the middle of a page that is not granted.
const GRANTED: (u64, usize) = (1024, 256);
const FILL: u8 = 0xa5;

struct Target {
    nic: SoftNic,
    poster: Poster,
    page: Region,
    granted: Mr,
    foreign: Mr,
    attacker: Cable,
    peer: SocketAddr,
}

fn target(format: QueueFormat) -> Target {
    let (own, peer) = addresses();
    let (link, attacker) = cable(own, peer);
    let clock = Clock::Virtual(VirtualClock::new());
    let config = Config { clock, seed: Some(7), violations_kept: 0, ..Config::default() };
    let nic = SoftNic::with_link(config, Box::new(link)).expect("a NIC");
    let pd = nic.alloc_pd();
    let mut poster = Poster::new(&nic, &pd, format, (CqMode::Ring, 8)).expect("queues");
    let page = HostBuf::region(4096).expect("memory");
    page.fill(0, 4096, FILL).expect("inside");
    let part = page.slice(GRANTED.0, GRANTED.1).expect("inside");
    let granted = nic.reg_mr(&pd, &part, Access::all()).expect("a key");
    let other = nic.alloc_pd();
    let foreign = HostBuf::region(4096).expect("memory");
    foreign.fill(0, 4096, FILL).expect("inside");
    let foreign = nic.reg_mr(&other, &foreign, Access::all()).expect("a key");
    let init = QpAttrs::init(Access::all());
    poster.connect(&init, &QpAttrs::rtr_to(peer, 0x77), &QpAttrs::rts());
    let place = sge(&granted, 0, 64);
    (0..8).for_each(|_| poster.post_recv(&[place]));
    Target { nic, poster, page, granted, foreign, attacker, peer }
}

/// A packet in terms of the target.
#[derive(Clone, Debug)]
struct Hostile {
    opcode: Opcode,
    own_qp: bool,
    psn: i32,
    key: u8,
    offset: i64,
    len: u32,
    payload: Vec<u8>,
    pkey: u16,
    flip: Option<(usize, u8)>,
}

/// Packets are the same, whatever the format of the queues behind them.
fn format() -> impl Strategy<Value = QueueFormat> {
    prop::sample::select(QueueFormat::ALL.to_vec())
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let opcode = prop::sample::select(Opcode::ALL.to_vec());
    let offset = prop_oneof![-16i64..300, any::<i64>()];
    let len = prop_oneof![0u32..300, any::<u32>()];
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec(any::<u8>(), 1024)
    ];
    let psn = prop_oneof![4 => -2i32..3, 1 => any::<i32>()];
    let pkey = prop_oneof![9 => Just(0xffff), 1 => any::<u16>()];
    let flip = prop::option::weighted(0.1, (any::<usize>(), 1u8..));
    (opcode, prop::bool::weighted(0.9), psn, 0u8..4, offset, len, payload, pkey, flip).prop_map(
        |(opcode, own_qp, psn, key, offset, len, payload, pkey, flip)| Hostile {
            opcode,
            own_qp,
            psn,
            key,
            offset,
            len,
            payload,
            pkey,
            flip,
        },
    )
}

impl Hostile {
    fn datagram(&self, target: &Target, expected: u32) -> Option<Vec<u8>> {
        let (mr, key) = match self.key {
            0 | 1 => (&target.granted, target.granted.rkey()),
            2 => (&target.foreign, target.foreign.rkey()),
            _ => (&target.granted, self.len ^ 0x1234),
        };
        let rkey = Rkey(key);
        let va = mr.addr().wrapping_add_signed(self.offset);
        let imm = ImmDt { data: self.len };
        let reth = Reth { va, rkey, dma_len: self.len };
        let aeth =
            Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccessError), msn: Msn::default() };
        let deth = Deth { qkey: 7, src_qpn: Qpn::from_low_bits(5) };
        let ext = match self.opcode.headers() {
            HeaderSet::Empty => Extension::Empty,
            HeaderSet::Imm => Extension::Imm(imm),
            HeaderSet::Ieth => Extension::Ieth(Ieth { rkey }),
            HeaderSet::Reth => Extension::Reth(reth),
            HeaderSet::RethImm => Extension::RethImm(reth, imm),
            HeaderSet::Aeth => Extension::Aeth(aeth),
            HeaderSet::AethAtomicAck => {
                Extension::AethAtomicAck(aeth, AtomicAckEth { original: u64::from(self.len) })
            }
            HeaderSet::Deth => Extension::Deth(deth),
            HeaderSet::DethImm => Extension::DethImm(deth, imm),
            HeaderSet::Atomic => {
                Extension::Atomic(AtomicEth { va, rkey, swap_add: u64::MAX, compare: 0 })
            }
        };
        let qpn = if self.own_qp { target.poster.qp.qpn() } else { self.len };
        let psn = Psn::from_low_bits(expected.wrapping_add_signed(self.psn));
        let mut bth = Bth::new(self.opcode, Qpn::from_low_bits(qpn), psn);
        (bth.pkey, bth.ack_request) = (Pkey(self.pkey), true);
        let ib = Transport { bth, ext, payload: &self.payload };
        let mut bytes = vec![0; ib.len() + icrc::LEN];
        let len = ib.len();
        // Some payloads no opcode carries: those are not packets at all.
        ib.emit(&mut bytes[..len]).ok()?;
        let own = target.nic.local_addr()?;
        let ip = Ip::new(target.peer.ip(), own.ip())?;
        let envelope = Envelope { ip, udp: Udp { src_port: target.peer.port() } };
        envelope.seal(&mut bytes).ok()?;
        if let Some((at, by)) = self.flip {
            let at = at % bytes.len();
            bytes[at] ^= by;
        }
        Some(bytes)
    }

    /// Bytes that an honest answer may have: headers, and what a READ asked for.
    fn answer(&self) -> usize {
        let asked = if self.opcode == Opcode::ReadRequest { self.len as usize } else { 0 };
        40 + asked.min(GRANTED.1)
    }
}

/// Bytes that the NIC sent.
fn replies(attacker: &mut Cable) -> usize {
    let mut bytes = 0;
    while attacker.receive(Duration::ZERO, &mut |reply| bytes += reply.bytes.len()) > 0 {}
    bytes
}

fn check_memory(target: &Target) {
    let all = bytes(&target.page, 0, 4096);
    let (start, len) = (GRANTED.0 as usize, GRANTED.1);
    let mut outside = all[..start].iter().chain(&all[start + len..]);
    assert!(outside.all(|byte| *byte == FILL), "written beside the region");
    let foreign = bytes(target.foreign.region(), 0, 4096);
    assert!(foreign.iter().all(|byte| *byte == FILL), "written in another domain");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn packets_with_hostile_fields(format in format(), packets in prop::collection::vec(hostile(), 1..40)) {
        let mut target = target(format);
        let mut expected = 0u32;
        for hostile in &packets {
            let Some(datagram) = hostile.datagram(&target, expected) else { continue };
            let own = target.nic.local_addr().expect("a link");
            target.attacker.send(Duration::ZERO, own, &datagram, datagram.len());
            rest([&target.nic]);
            let bytes = replies(&mut target.attacker);
            prop_assert!(bytes <= hostile.answer(), "{bytes} bytes for {hostile:?}");
            // Follow the QP as a peer would, as well as can be known from outside.
            expected = expected.wrapping_add(u32::from(hostile.psn == 0 && bytes > 0));
        }
        check_memory(&target);
    }

    #[test]
    fn bytes_of_any_kind(format in format(), datagrams in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let mut target = target(format);
        let own = target.nic.local_addr().expect("a link");
        for datagram in &datagrams {
            target.attacker.send(Duration::ZERO, own, datagram, datagram.len().max(1));
        }
        rest([&target.nic]);
        prop_assert_eq!(replies(&mut target.attacker), 0);
        prop_assert_eq!(target.poster.qp.state(), QpState::Rts);
        check_memory(&target);
    }
}

#[test]
fn an_honest_write_gets_through() {
    let mut target = target(QueueFormat::Mlx5);
    let honest = Hostile {
        opcode: Opcode::WriteOnly,
        own_qp: true,
        psn: 0,
        key: 0,
        offset: 0,
        len: 5,
        payload: b"hello".to_vec(),
        pkey: 0xffff,
        flip: None,
    };
    let own = target.nic.local_addr().unwrap();
    let datagram = honest.datagram(&target, 0).unwrap();
    target.attacker.send(Duration::ZERO, own, &datagram, datagram.len());
    rest([&target.nic]);
    assert!(replies(&mut target.attacker) > 0);
    assert_eq!(bytes(&target.page, GRANTED.0, 5), b"hello");
    let wrong = Hostile { pkey: 0x1234, ..honest.clone() };
    let datagram = wrong.datagram(&target, 1).unwrap();
    target.attacker.send(Duration::ZERO, own, &datagram, datagram.len());
    let torn = Hostile { flip: Some((20, 1)), ..honest };
    let datagram = torn.datagram(&target, 1).unwrap();
    target.attacker.send(Duration::ZERO, own, &datagram, datagram.len());
    rest([&target.nic]);
    let stats = target.nic.stats().net;
    assert_eq!((stats.wrong_pkey, stats.bad_icrc, replies(&mut target.attacker)), (1, 1, 0));
}
