//! Whole packets as golden arrays, both ways, and what their printed lines look like. The ICRCs
//! were computed by another implementation.

use std::net::{Ipv4Addr, Ipv6Addr};

use warpverbs_wire::{
    Aeth, Bth, Checks, EmitError, Envelope, Extension, HeaderName, HeaderSet, ImmDt, Ip, Ipv4,
    Ipv6, Msn, Mtu, NakCode, Opcode, Packet, ParseError, PayloadError, Pkey, Psn, Qpn,
    ReservedField, Reth, Rkey, Syndrome, Transport, Udp,
};

#[rustfmt::skip]
const WRITE: [u8; 68] = [
    0x45, 0x02, 0x00, 0x44, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x14, 0x71, // IPv4
    0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02,
    0xc0, 0x01, 0x12, 0xb7, 0x00, 0x30, 0x00, 0x00, // UDP
    0x0a, 0x70, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0xff, 0xff, 0xff, // BTH
    0x00, 0x00, 0x7f, 0x00, 0x12, 0x34, 0x56, 0x78, // RETH
    0xde, 0xad, 0xbe, 0xef, 0x00, 0x00, 0x00, 0x05,
    0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x00, 0x00, 0x00, // payload and pad
    0x5a, 0x0d, 0xe3, 0x30, // ICRC
];

#[rustfmt::skip]
const NAK: [u8; 68] = [
    0x60, 0x01, 0x23, 0x45, 0x00, 0x1c, 0x11, 0x40, // IPv6
    0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
    0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,
    0xc0, 0x02, 0x12, 0xb7, 0x00, 0x1c, 0x00, 0x00, // UDP
    0x11, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x12, 0x00, 0x00, 0x00, 0x07, // BTH
    0x62, 0x00, 0x00, 0x03, // AETH
    0x57, 0xb6, 0xbb, 0x06, // ICRC
];

fn write() -> Packet<'static> {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let ip = Ip::V4(Ipv4 { tos: 2, id: 0x1234, ..Ipv4::new(src, dst) });
    let bth = Bth::new(Opcode::WriteOnly, Qpn::from_low_bits(0x11), Psn::from_low_bits(0xff_ffff));
    let reth = Reth { va: 0x7f00_1234_5678, rkey: Rkey(0xdead_beef), dma_len: 5 };
    Packet {
        envelope: Envelope { ip, udp: Udp { src_port: 0xc001 } },
        transport: Transport {
            bth: Bth { ack_request: true, ..bth },
            ext: Extension::Reth(reth),
            payload: b"hello",
        },
    }
}

fn nak() -> Packet<'static> {
    let address = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    let ip = Ip::V6(Ipv6 { flow_label: 0x12345, ..Ipv6::new(address(1), address(2)) });
    let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
    Packet {
        envelope: Envelope { ip, udp: Udp { src_port: 0xc002 } },
        transport: Transport {
            bth: Bth::new(Opcode::Acknowledge, Qpn::from_low_bits(0x12), Psn::from_low_bits(7)),
            ext: Extension::Aeth(Aeth { syndrome, msn: Msn::from_low_bits(3) }),
            payload: b"",
        },
    }
}

#[test]
fn golden_both_ways() {
    for (bytes, packet) in [(WRITE, write()), (NAK, nak())] {
        assert_eq!(Packet::parse(&bytes, &Checks::STRICT), Ok(packet));
        let mut out = [0xa5; 68];
        assert_eq!(packet.emit(&mut out), Ok(()));
        assert_eq!(out, bytes);
    }
}

#[test]
fn lines_read_like_a_capture() {
    assert_eq!(
        write().to_string(),
        "IP 10.0.0.1.49153 > 10.0.0.2.4791: RoCEv2 RC RDMA WRITE Only qp 0x000011 psn 16777215 \
         ackreq, va 0x7f0012345678 rkey 0xdeadbeef dmalen 5, length 5"
    );
    assert_eq!(
        nak().to_string(),
        "IP6 fe80::1.49154 > fe80::2.4791: RoCEv2 RC Acknowledge qp 0x000012 psn 7, \
         nak remote access error msn 3, length 0"
    );
}

/// The write with some bytes changed and everything else made right again.
fn parse_changed(changes: &[(usize, u8)], checks: &Checks) -> Result<(), ParseError> {
    let mut bytes = WRITE;
    changes.iter().for_each(|(at, value)| bytes[*at] = *value);
    write().envelope.seal(&mut bytes[28..]).unwrap();
    Packet::parse(&bytes, checks).map(|_| ())
}

#[test]
fn each_bad_transport_field_is_named() {
    let reserved = |field, found| Err(ParseError::Reserved { field, found });
    let strict = &Checks::STRICT;
    assert_eq!(parse_changed(&[], strict), Ok(()));
    assert_eq!(parse_changed(&[(29, 0x71)], strict), Err(ParseError::Version { found: 1 }));
    assert_eq!(parse_changed(&[(28, 0x66)], strict), Err(ParseError::Opcode { found: 0x66 }));
    let expected = Pkey::DEFAULT;
    let pkey = ParseError::Pkey { found: Pkey(0x80ff), expected };
    assert_eq!(parse_changed(&[(30, 0x80)], strict), Err(pkey));
    for (change, field, found) in [
        ((32, 0xc1), ReservedField::Bth6, 1),
        ((36, 0xff), ReservedField::Bth7, 0x7f),
        ((62, 0x09), ReservedField::Pad, 0x900),
    ] {
        assert_eq!(parse_changed(&[change], strict), reserved(field, found));
        assert_eq!(parse_changed(&[change], &Checks::CONFORMING), Ok(()));
    }
    // An atomic needs 28 bytes where 24 are.
    let truncated = ParseError::Truncated { header: HeaderName::AtomicEth, need: 28, have: 24 };
    assert_eq!(parse_changed(&[(28, 0x14)], strict), Err(truncated));
}

/// Reserved opcodes of reliable connection, but not those of other services, are owed an answer.
#[test]
fn reserved_opcodes_name_their_place() {
    let mut ib = [0; 12];
    let bth = Bth::new(Opcode::SendOnly, Qpn::from_low_bits(0x11), Psn::from_low_bits(0x22));
    bth.emit(0, <_ as warpverbs_wire::Layout>::view_mut(&mut ib).unwrap().0);
    for opcode in 0..=255 {
        ib[0] = opcode;
        let known = Opcode::from_byte(opcode).is_some();
        let place =
            Transport::reserved(&ib, Pkey::DEFAULT).map(|(qpn, psn)| (qpn.get(), psn.get()));
        assert_eq!(place, (opcode < 32 && !known).then_some((0x11, 0x22)), "{opcode}");
    }
    ib[0] = 0x1f;
    assert_eq!(Transport::reserved(&ib, Pkey(0x1234)), None);
    assert_eq!(Transport::reserved(&ib[..11], Pkey::DEFAULT), None);
    ib[1] |= 1;
    assert_eq!(Transport::reserved(&ib, Pkey::DEFAULT), None);
}

#[test]
fn pad_and_alignment_are_checked() {
    let mut ib = [0; 16];
    write().transport.bth.emit(0, <_ as warpverbs_wire::Layout>::view_mut(&mut ib).unwrap().0);
    ib[0] = Opcode::SendOnly.byte();
    let parse = |ib: &[u8]| Transport::parse(ib, &Checks::STRICT).map(|t| t.payload.len());
    assert_eq!(parse(&ib), Ok(4));
    assert_eq!(parse(&ib[..15]), Err(ParseError::Alignment { found: 3 }));
    ib[1] |= 0x30;
    assert_eq!(parse(&ib), Ok(1));
    assert_eq!(parse(&ib[..12]), Err(ParseError::Pad { pad: 3, have: 0 }));
}

#[test]
fn every_prefix_is_refused_and_every_tail_is_cut() {
    for bytes in [&WRITE, &NAK] {
        for len in 0..bytes.len() {
            assert!(Packet::parse(&bytes[..len], &Checks::CONFORMING).is_err(), "{len}");
        }
        let longer = [&bytes[..], &[0; 6]].concat();
        assert_eq!(Packet::parse(&longer, &Checks::STRICT), Packet::parse(bytes, &Checks::STRICT));
    }
    let cut = Packet::parse(&[], &Checks::STRICT).unwrap_err();
    assert_eq!(cut.to_string(), "IPv4 needs 20 bytes, 0 are left");
}

#[test]
fn emission_refuses_what_no_receiver_could_accept() {
    let mut out = [0xa5; 68];
    let mut packet = write();
    packet.transport.ext = Extension::Imm(ImmDt { data: 0 });
    let (opcode, expected) = (Opcode::WriteOnly, HeaderSet::Reth);
    let headers = EmitError::Headers { opcode, found: HeaderSet::Imm, expected };
    assert_eq!(packet.emit(&mut out[..packet.len()]), Err(headers));
    assert_eq!(headers.to_string(), "RDMA WRITE Only carries RETH, got ImmDt");
    assert_eq!(write().emit(&mut out[1..]), Err(EmitError::Buffer { need: 68, have: 67 }));
    let payload = &[0; 4097][..];
    let transport = Transport { payload, ..write().transport };
    let cause = PayloadError::TooLong { len: 4097, mtu: Mtu::B4096 };
    let mut long = vec![0xa5; transport.len()];
    assert_eq!(transport.emit(&mut long), Err(EmitError::Payload { opcode, cause }));
    assert!(out.iter().chain(&long).all(|byte| *byte == 0xa5), "nothing is written on error");
}

/// A UDP socket hides the identification; the ICRC gives it away.
#[test]
fn hidden_identification_is_found() {
    let hidden = Envelope { ip: Ip::V4(Ipv4 { id: 0, ..v4(&write()) }), ..write().envelope };
    let datagram = &WRITE[28..];
    assert!(matches!(hidden.open(datagram), Err(ParseError::Icrc { .. })));
    assert_eq!(hidden.open_any_id(datagram), Ok((&WRITE[28..64], write().envelope)));

    let dst = Ipv4Addr::new(10, 0, 0, 3);
    let elsewhere = Envelope { ip: Ip::V4(Ipv4 { dst, ..v4(&write()) }), ..write().envelope };
    assert!(matches!(elsewhere.open_any_id(datagram), Err(ParseError::Icrc { .. })));
    for at in 0..datagram.len() {
        let mut changed = datagram.to_vec();
        changed[at] ^= 0x10;
        // BTH resv8a is not covered.
        assert_eq!(hidden.open_any_id(&changed).is_ok(), at == 4, "{at}");
    }
}

fn v4(packet: &Packet<'_>) -> Ipv4 {
    match packet.envelope.ip {
        Ip::V4(ip) => ip,
        Ip::V6(_) => panic!("the golden write is IPv4"),
    }
}
