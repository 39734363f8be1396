//! Bytes that the unmodified library wrote (libionic of rdma-core v64), in both directions: one connection
//! of QP 0x42, in a send queue of 64.

use crate::offsets::{built, parse_as};
use crate::request::{Payload, Request};
use warpverbs_ionic::doorbell::{Doorbell, queue_type};
use warpverbs_ionic::opcode::Protocol;
use warpverbs_ionic::recv;
use warpverbs_ionic::ring::{Position, counter};
use warpverbs_rdma::{Op, Qpn, Remote, SendFlags, Sge};

const REMOTE: Remote = Remote::new(0x99aa_bbcc_ddee_ff00, 0x5566_7788);
const LOCAL: u64 = 0x1122_3344_5566_7788;
const LKEY: u32 = 0xaabb_ccdd;
const IMM: u32 = 0xcafe_f00d;
const OPERAND: u64 = 0x0102_0304_0506_0708;

/// Bytes written as hexadecimal digits, with spaces where they help; the rest of 64 is zero.
pub(crate) fn wqe(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte =
        |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).expect("two digits");
    let mut bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    bytes.resize(64, 0);
    bytes
}

fn at(counter: u64) -> Position {
    Position { counter, log_depth: 6 }
}

fn signaled(op: Op, len: u32) -> Request {
    let payload = Payload::Sges(vec![Sge::new(LOCAL, len, LKEY)]);
    Request { op, to: None, payload, flags: SendFlags::SIGNALED }
}

fn check(counter: u64, protocol: Protocol, request: &Request, bytes: &[u8]) {
    assert_eq!(built(request, at(counter), protocol), bytes, "{request:?}");
    let posted = parse_as(request, bytes, at(counter), protocol).expect("well formed");
    assert!(request.is(&posted), "{posted:?}");
}

/// The requests in the order in which they were posted, from the beginning of the ring on, and their bytes.
pub(crate) fn posted() -> [(Request, &'static str); 7] {
    let swap = 0x1112_1314_1516_1718;
    let inline = Request {
        payload: Payload::Inline(vec![1, 2, 3, 4, 5, 6, 7, 8]),
        flags: SendFlags::UNSIGNALED,
        ..signaled(Op::Write(REMOTE), 0)
    };
    [
        (
            signaled(Op::Write(REMOTE), 3000),
            "0000000000000000 21 01 0018 00000000 99aabbcc ddeeff00 55667788 00000bb8
             11223344 55667788 00000bb8 aabbccdd",
        ),
        (
            signaled(Op::SendImm(IMM), 3000),
            "0100000000000000 60 01 0018 cafef00d 00000000 00000000 00000000 00000bb8
             11223344 55667788 00000bb8 aabbccdd",
        ),
        (
            signaled(Op::Read(REMOTE), 3000),
            "0200000000000000 02 01 0018 00000000 99aabbcc ddeeff00 55667788 00000bb8
             11223344 55667788 00000bb8 aabbccdd",
        ),
        (
            signaled(Op::FetchAdd { remote: REMOTE, add: OPERAND }, 8),
            "0300000000000000 05 01 0018 00000000 99aabbcc ddeeff00 55667788 01020304
             05060708 00000000 00000000 aabbccdd 11223344 55667788 00000000 00000000",
        ),
        (
            signaled(Op::CompareSwap { remote: REMOTE, compare: OPERAND, swap }, 8),
            "0400000000000000 04 01 0018 00000000 99aabbcc ddeeff00 55667788 11121314
             15161718 01020304 05060708 aabbccdd 11223344 55667788 00000000 00000000",
        ),
        (
            signaled(Op::WriteImm(REMOTE, IMM), 3000),
            "0500000000000000 61 01 0018 cafef00d 99aabbcc ddeeff00 55667788 00000bb8
             11223344 55667788 00000bb8 aabbccdd",
        ),
        (
            inline,
            "0600000000000000 21 00 0014 00000000 99aabbcc ddeeff00 55667788 00000008
             01020304 05060708",
        ),
    ]
}

#[test]
fn send_wqes() {
    for (counter, (request, bytes)) in (0..).zip(&posted()) {
        check(counter, Protocol::V2, request, &wqe(bytes));
    }
}

#[test]
fn protocol_1() {
    let write = "0000000000000000 04 01 0018 00000000 99aabbcc ddeeff00 55667788 00000bb8
                 11223344 55667788 00000bb8 aabbccdd";
    check(0, Protocol::V1, &signaled(Op::Write(REMOTE), 3000), &wqe(write));
    let add = "0300000000000000 07 01 0018 00000000 99aabbcc ddeeff00 55667788 01020304
               05060708 00000000 00000000 00000000 11223344 55667788 00000008 aabbccdd";
    let request = signaled(Op::FetchAdd { remote: REMOTE, add: OPERAND }, 8);
    check(3, Protocol::V1, &request, &wqe(add));
}

#[test]
fn colors_over_laps() {
    for (counter, flags) in [(0, 0x18), (63, 0x18), (64, 0x08), (127, 0x08), (128, 0x18)] {
        let raw = built(&signaled(Op::Write(REMOTE), 8), at(counter), Protocol::V2);
        assert_eq!(raw[10..12], [0, flags], "{counter}");
    }
}

#[test]
fn a_receive() {
    let bytes = wqe("0000000000000000 00 01 0000 00000bb8 00000000 00000000 00000000 00000000
                     11223344 55667788 00000bb8 aabbccdd");
    let sge = Sge::new(LOCAL, 3000, LKEY);
    let mut raw = [0xff; 64];
    recv::build(&mut raw, at(0), &[sge]).expect("it fits");
    assert_eq!(raw, bytes[..]);
    let list = recv::parse(&bytes, at(0)).expect("well formed");
    assert_eq!(list.single(), Some(sge));
}

#[test]
fn doorbells() {
    // Counters so far and now, logarithm of the ring, queue, word.
    let rung = [
        (0, 1, 6, 0x42, 0x0000_0000_4200_0001),
        (1, 7, 6, 0x42, 0x0000_0000_4200_0007),
        (7, 63, 6, 0x42, 0x0000_0000_4200_003f),
        (63, 64, 6, 0x42, 0x0000_0000_4200_0000),
        (64, 65, 6, 0x42, 0x0000_0000_4200_0001),
        (0, 0x3f, 7, 5, 0x0000_0000_0500_003f),
        (0x3f, 0x7e, 7, 5, 0x0000_0000_0500_007e),
        (0x7e, 0xbd, 7, 5, 0x0000_0000_0500_003d),
    ];
    for (before, now, log_depth, queue, word) in rung {
        let index = Position { counter: now, log_depth }.index();
        let queue = Qpn::new(queue).expect("24 bits");
        let doorbell = Doorbell { queue, index, arm: None };
        assert_eq!(doorbell.word(), word);
        assert_eq!(Doorbell::parse(word), Ok(doorbell));
        assert_eq!(counter(index, before, log_depth), Ok(now));
    }
    // SQ, RQ and CQ, in the page's first block of registers and in its last.
    assert_eq!([0x8, 0x10, 0x18, 0xfc8, 0xfd0, 0xfd8].map(queue_type), [1, 2, 3, 1, 2, 3]);
}
