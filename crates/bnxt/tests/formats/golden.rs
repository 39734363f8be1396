//! Bytes that unmodified libraries wrote (libbnxt_re of rdma-core v64, and of v44 where it differs), in
//! both directions: one connection of path MTU 1024 and QP 0x42, whose first packet is 0x123456.

use crate::offsets::built;
use crate::request::{Payload, Request};
use warpverbs_bnxt::doorbell::{Doorbell, Kind};
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_bnxt::recv;
use warpverbs_bnxt::ring::{Library, Mode, Ring};
use warpverbs_bnxt::wqe::parse;
use warpverbs_rdma::{Mtu, Op, Remote, SendFlags, Sge};

const REMOTE: Remote = Remote::new(0x99aa_bbcc_ddee_ff00, 0x5566_7788);
const LOCAL: u64 = 0x1122_3344_5566_7788;
const LKEY: u32 = 0xaabb_ccdd;
const IMM: u32 = 0xcafe_f00d;
pub(crate) const PSN: u32 = 0x12_3456;
const QPN: u32 = 0x42;

/// Bytes written as hexadecimal digits, with spaces where they help.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte =
        |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).expect("two digits");
    digits.chunks(2).map(byte).collect()
}

fn signaled(op: Op, len: u32) -> Request {
    let payload = Payload::Sges(vec![Sge::new(LOCAL, len, LKEY)]);
    Request { op, to: None, payload, flags: SendFlags::SIGNALED }
}

/// The requests, in the order in which they were posted, and their bytes.
pub(crate) fn wqes() -> [(Request, &'static str); 7] {
    let unsignaled = |op, bytes: &[u8]| Request {
        payload: Payload::Inline(bytes.to_vec()),
        flags: SendFlags::UNSIGNALED,
        ..signaled(op, 0)
    };
    let (compare, swap) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718);
    [
        (
            signaled(Op::Write(REMOTE), 3000),
            "04010300 00000000 b80b0000 00000000 00ffeedd ccbbaa99 88776655 00000000
             88776655 44332211 ddccbbaa b80b0000",
        ),
        (
            signaled(Op::SendImm(IMM), 3000),
            "01010300 0df0feca b80b0000 00000000 00000000 00000000 00000000 00000000
             88776655 44332211 ddccbbaa b80b0000",
        ),
        (
            signaled(Op::Read(REMOTE), 3000),
            "06010300 00000000 b80b0000 00000000 00ffeedd ccbbaa99 88776655 00000000
             88776655 44332211 ddccbbaa b80b0000",
        ),
        (
            signaled(Op::FetchAdd { remote: REMOTE, add: compare }, 8),
            "0b010300 88776655 00ffeedd ccbbaa99 08070605 04030201 00000000 00000000
             88776655 44332211 ddccbbaa 08000000",
        ),
        (
            signaled(Op::CompareSwap { remote: REMOTE, compare, swap }, 8),
            "08010300 88776655 00ffeedd ccbbaa99 18171615 14131211 08070605 04030201
             88776655 44332211 ddccbbaa 08000000",
        ),
        (
            signaled(Op::WriteImm(REMOTE, IMM), 3000),
            "05010300 0df0feca b80b0000 00000000 00ffeedd ccbbaa99 88776655 00000000
             88776655 44332211 ddccbbaa b80b0000",
        ),
        (
            unsignaled(Op::Write(REMOTE), &[1, 2, 3, 4, 5, 6, 7, 8]),
            "04100300 00000000 08000000 00000000 00ffeedd ccbbaa99 88776655 00000000
             01020304 05060708 00000000 00000000",
        ),
    ]
}

#[test]
fn send_wqes() {
    for (request, bytes) in wqes() {
        assert_eq!(built(&request), hex(bytes), "{request:?}");
        let raw = hex(bytes);
        let posted = parse(&raw, Library::Current).expect("well formed");
        assert!(request.is(&posted), "{posted:?}");
    }
}

#[test]
fn a_receive() {
    let bytes = hex("80000300 00000000 00000000 00000000 00000000 00000000 00000000 00000000
                     88776655 44332211 ddccbbaa b80b0000");
    let sge = Sge::new(LOCAL, 3000, LKEY);
    let mut buf = [0xff; 64];
    assert_eq!(recv::build(&mut buf, 0, &[sge]), Ok(&bytes[..]));
    let (id, list) = recv::parse(&bytes).expect("well formed");
    assert_eq!((id, list.single()), (0, Some(sge)));
}

/// The requests in their order give the rows, with these opcodes and starts.
fn check_table(table: Table, opcodes: &[u8], starts: &[u16], rows: &[&str]) {
    let mut first = PSN;
    for (n, (row, (request, _))) in rows.iter().zip(wqes()).enumerate() {
        let expected = Packets::of(first, request.byte_len() as u32, Mtu::B1024, starts[n]);
        let mut entry = vec![0xee; table.entry()];
        expected.write(table, opcodes[n], &mut entry).expect("the size of an entry");
        assert_eq!(entry, hex(row), "{table:?}, row {n}");
        let found = Packets::read(table, &hex(row)).expect("an entry");
        assert_eq!(found.check(expected), Ok(()), "{table:?}, row {n}");
        assert_eq!(found.start.is_some(), table == Table::Msn);
        first = found.next;
    }
}

#[test]
fn tables_of_packet_numbers() {
    let request_codes = [0, 3, 4, 6, 5, 1, 0];
    let ext = [
        "56341200 59341200 0000 000000000000",
        "59341203 5c341200 0100 000000000000",
        "5c341204 5f341200 0200 000000000000",
        "5f341206 60341200 0300 000000000000",
    ];
    check_table(Table::PsnExt, &request_codes, &[0, 1, 2, 3], &ext);
    // The early library counts slots in static mode, and has codes of completions.
    let early = [
        "56341201 59341200 0000 000000000000",
        "59341200 5c341200 0800 000000000000",
        "5c341202 5f341200 1000 000000000000",
        "5f341204 60341200 1800 000000000000",
    ];
    check_table(Table::PsnExt, &[1, 0, 2, 4], &[0, 8, 16, 24], &early);
    let first = ["56341200 59341200", "59341203 5c341200", "5c341204 5f341200"];
    check_table(Table::Psn, &request_codes, &[0; 7], &first);

    let msn = |starts: [u16; 7]| {
        let packets = ["563412593412", "5934125c3412", "5c34125f3412", "5f3412603412"];
        let packets = packets.into_iter().chain(["603412613412", "613412643412", "643412653412"]);
        let rows: Vec<_> =
            packets.zip(starts).map(|(row, start)| format!("{row}{start:02x}00")).collect();
        let rows: Vec<_> = rows.iter().map(String::as_str).collect();
        check_table(Table::Msn, &[0; 7], &starts, &rows);
    };
    msn([0, 1, 2, 3, 4, 5, 6]);
    msn([0, 3, 6, 9, 0xc, 0xf, 0x12]);
}

#[test]
fn doorbells() {
    let check = |ring: Ring, kind, counters: &[u64], words: &[u64]| {
        let mut before = 0;
        for (&counter, &word) in counters.iter().zip(words) {
            let doorbell = ring.doorbell(kind, QPN, counter);
            assert_eq!(doorbell.word(), word, "{counter}");
            assert_eq!(Doorbell::parse(word), Ok(doorbell));
            assert_eq!(ring.counter(&doorbell, before), Ok(counter));
            before = counter;
        }
    };
    let (early, current) = (Library::Early, Library::Current);
    let ring = |size, library| Ring::new(size, library).expect("a size");
    // Static mode counts WQEs, variable mode the slots of three WQEs of 3 each.
    assert_eq!([Mode::Static, Mode::Variable].map(|mode| mode.units(3)), [1, 3]);
    let words = [0x0400_0042_0000_0001, 0x0400_0042_0000_0002, 0x0400_0042_0000_0003];
    check(ring(256, current), Kind::Send, &[1, 2, 3], &words);
    let words = [0x0400_0042_0000_0003, 0x0400_0042_0000_0006, 0x0400_0042_0000_0009];
    check(ring(768, current), Kind::Send, &[3, 6, 9], &words);
    check(ring(256, current), Kind::Receive, &[1], &[0x1400_0042_0000_0001]);
    check(ring(256, early), Kind::Send, &[1], &[0x0000_0042_0000_0001]);
    // Around the ends of the first and the second lap.
    let counters = [255, 256, 257, 511, 512];
    let words = [
        0x0400_0042_0000_00ff,
        0x0400_0042_0100_0000,
        0x0400_0042_0100_0001,
        0x0400_0042_0100_00ff,
        0x0400_0042_0000_0000,
    ];
    check(ring(256, current), Kind::Send, &counters, &words);
    // A CQ of 64 entries, number 5, rung every half.
    for (counter, word) in [(32, 0x4400_0005_0000_0020), (64, 0x4400_0005_0100_0000)] {
        assert_eq!(ring(64, current).doorbell(Kind::Completion, 5, counter).word(), word);
    }
}
