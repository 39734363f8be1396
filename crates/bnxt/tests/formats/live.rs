//! An unmodified libbnxt_re beside the formats here, without a device: whatever the library posts is what
//! was described, and it completes what CQEs from here say. `tests/c/library.c` drives the library, as far
//! as it is an early one.

use crate::driven::{Driven, Folder, bytes, entries, line, number, program, seed, skip, values};
use crate::offsets::{Field, built, entry_fields, fields};
use crate::request::{Payload, Request, request, sge};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::path::PathBuf;
use warpverbs_bnxt::cqe::Cqe;
use warpverbs_bnxt::doorbell::{Doorbell, Kind};
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_bnxt::ring::{Library, Mode, Ring};
use warpverbs_bnxt::status::{RecvStatus, SendStatus};
use warpverbs_bnxt::{recv, wqe};
use warpverbs_rdma::{Addressed, Mtu, Op, Qpn, ReceivedKind, SendFlags, Sge, Status};

/// As the program in C has them.
const QPN: u32 = 0x42;
const CQN: u32 = 5;
const DEPTH: u64 = 256;
const HANDLE: u32 = 0x5_4321;

/// The version of the library.
const LIBRARY: Library = Library::Early;

/// The library as distributions install it.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let folders = folders.chain(["/usr/lib".into(), "/usr/lib64".into()]);
    let mut libraries = folders.map(|folder| folder.join("libibverbs/libbnxt_re-rdmav34.so"));
    libraries.find(|path| path.exists())
}

/// Requests that the library takes; it refuses SEND with invalidate.
fn requests(datagrams: bool) -> impl Strategy<Value = Request> {
    (request(), any::<(u8, u32, u32)>()).prop_map(move |(mut request, (first, qpn, qkey))| {
        let to = Addressed { handle: HANDLE, qpn: Qpn::truncate(qpn), qkey };
        request.op = match (request.op, datagrams) {
            (op @ (Op::Send | Op::SendImm(_)), _) => op,
            (Op::SendInvalidate(_), _) | (_, true) => Op::Send,
            (op, false) => op,
        };
        request.to = datagrams.then_some(to);
        match &mut request.payload {
            Payload::Sges(sges) => sges.truncate(6),
            Payload::Inline(bytes) => {
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = first.wrapping_add(at as u8);
                }
            }
        }
        request
    })
}

fn assert_fields(raw: &[u8], fields: &[Field], about: &str) {
    for &(at, bytes, value) in fields {
        assert_eq!(raw[at..at + bytes], value.to_le_bytes()[..bytes], "byte {at}: {about}");
    }
}

/// The program, and what was posted and completed so far.
struct Run {
    driven: Driven,
    table: Table,
    datagrams: bool,
    ring: Ring,
    cq: Ring,
    handle: u64,
    sent: u64,
    received: u64,
    cqes: u64,
    psn: u32,
    /// Sends that have not ended, and whether they are signalled.
    sends: VecDeque<(u64, bool)>,
}

impl Run {
    /// `None` if the library is a later one.
    fn new(mut driven: Driven, table: Table, datagrams: bool) -> Option<Self> {
        let hello = driven.line();
        // The doorbell of a receive tells which version it is.
        driven.say(&format!("recv {}", entries(&[])));
        let word = number(driven.line().last().expect("a doorbell"));
        if Doorbell::parse(word).expect("a doorbell").valid {
            return None;
        }
        let ring = |size| Ring::new(size, LIBRARY).expect("a size");
        let cq = ring(number(&hello[3]) as u32);
        let (handle, ring) = (number(&hello[1]), ring(DEPTH as u32));
        let (sent, received, cqes, psn, sends) = (0, 1, 0, 0x12_3456, VecDeque::new());
        Some(Self { driven, table, datagrams, ring, cq, handle, sent, received, cqes, psn, sends })
    }

    fn send(&mut self, request: &Request) {
        self.driven.say(&line(request));
        let answer = self.driven.line();
        let [_, raw, _, entry, _, doorbell] = &answer[..] else { panic!("{answer:?}") };
        let (raw, entry, about) = (bytes(raw), bytes(entry), format!("{request:?}"));
        assert_fields(&raw, &fields(request, LIBRARY), &about);
        let encoded = built(request);
        // Later laps find old bytes where the library writes none, and a summand is elsewhere.
        if self.sent < DEPTH && !matches!(request.op, Op::FetchAdd { .. }) {
            assert_eq!(raw[..encoded.len()], encoded, "{about}");
        }
        let parsed = match self.datagrams {
            true => wqe::parse_datagram(&raw),
            false => wqe::parse(&raw, LIBRARY),
        };
        assert!(request.is(&parsed.expect("well formed")), "{about}");

        if !self.datagrams {
            self.check_packets(request, &entry);
        }
        self.sent += 1;
        let rung = self.ring.doorbell(Kind::Send, QPN, self.sent).word();
        assert_eq!(number(doorbell), rung);
        let signaled = request.flags.contains(SendFlags::SIGNALED);
        self.sends.push_back((self.sent - 1, signaled));
    }

    /// The entry of packet numbers beside the WQE of `request`, the next one.
    fn check_packets(&mut self, request: &Request, entry: &[u8]) {
        let start = Mode::Static.slot((self.sent % DEPTH) as u32) as u16;
        let expected = Packets::of(self.psn, request.byte_len() as u32, Mtu::B1024, start);
        let mut encoded = vec![0; entry.len()];
        expected.write(self.table, entry[3], &mut encoded).expect("the size of an entry");
        assert_eq!(entry, encoded, "{request:?}");
        let found = Packets::read(self.table, entry).expect("an entry");
        assert_eq!(found.check(expected), Ok(()), "{request:?}");
        self.psn = found.next;
    }

    fn receive(&mut self, sges: &[Sge]) {
        self.driven.say(&format!("recv {}", entries(sges)));
        let answer = self.driven.line();
        let [_, raw, _, doorbell] = &answer[..] else { panic!("{answer:?}") };
        let raw = bytes(raw);
        assert_fields(&raw, &entry_fields(sges).collect::<Vec<_>>(), "a receive");
        let (id, list) = recv::parse(&raw).expect("well formed");
        assert_eq!(u64::from(id), self.received % DEPTH);
        let empty = sges.iter().all(|sge| sge.len == 0);
        assert!(list.iter().eq(if empty { &[][..] } else { sges }.iter().copied()));
        if self.received < DEPTH {
            let mut buf = [0; 128];
            let encoded = recv::build(&mut buf, id, sges).expect("it fits");
            assert_eq!(raw[..encoded.len()], *encoded);
        }
        self.received += 1;
        let rung = self.ring.doorbell(Kind::Receive, QPN, self.received).word();
        assert_eq!(number(doorbell), rung);
    }

    /// Writes a CQE, and gives what the library reports: number, status, length, opcode, flags, immediate,
    /// sender.
    fn complete(&mut self, cqe: &Cqe) -> Vec<Vec<u64>> {
        let raw = cqe.emit(self.cq.phase(self.cqes));
        let text: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        self.driven.say(&format!("cqe {text}"));
        self.cqes += 1;
        let mut found = Vec::new();
        loop {
            let line = self.driven.line();
            match line[0].as_str() {
                "wc" => found.push(line[1..].iter().map(|word| number(word)).collect()),
                _ => {
                    let rung = self.cq.doorbell(Kind::Completion, CQN, self.cqes).word();
                    assert_eq!(number(&line[1]), rung);
                    return found;
                }
            }
        }
    }

    fn complete_sends(&mut self) {
        let consumed = self.sent as u16;
        let done = Cqe::Sent { qp_handle: self.handle, consumed, status: SendStatus::Ok };
        let found = self.complete(&done);
        let signaled = self.sends.drain(..).filter(|(_, signaled)| *signaled);
        let expected: Vec<_> = signaled.map(|(id, _)| (id, Status::Success)).collect();
        let found: Vec<_> =
            found.iter().map(|wc| (wc[0], Status::from_value(wc[1] as u32))).collect();
        assert_eq!(found, expected);
    }

    /// Completes receive `id`, the oldest.
    fn complete_receive(&mut self, id: u64, kind: ReceivedKind, length: u32) {
        if self.datagrams {
            return self.complete_datagram(id, length);
        }
        let (qp_handle, status) = (self.handle, RecvStatus::Ok);
        let receive = (id % DEPTH) as u32;
        let cqe = Cqe::Received { qp_handle, id: receive, shared: false, status, kind, length };
        let found = self.complete(&cqe);
        let [wc] = &found[..] else { panic!("{found:?}") };
        assert_eq!(wc[..3], [id, 0, length.into()]);
        // RECV and RECV_RDMA_WITH_IMM.
        assert_eq!(wc[3], 128 + u64::from(!kind.fills_receive()));
        if let ReceivedKind::SendImm(imm) | ReceivedKind::WriteImm(imm) = kind {
            assert_eq!(wc[4..6], [2, imm.into()]);
        }
    }

    fn complete_datagram(&mut self, id: u64, length: u32) {
        // The library takes but two of the high eight bits of a sender.
        let (shared, status, source) =
            (false, RecvStatus::Ok, Qpn::truncate(length >> 16 | 0x18_0000));
        let (imm, length) = ((length & 1 != 0).then_some(length), length as u16 & 0x3fff);
        let (qp_handle, ipv6) = (self.handle, id.is_multiple_of(2));
        let number = (id % DEPTH) as u32;
        let cqe =
            Cqe::Datagram { qp_handle, id: number, shared, status, imm, length, source, ipv6 };
        let found = self.complete(&cqe);
        let [wc] = &found[..] else { panic!("{found:?}") };
        assert_eq!(wc[..4], [id, 0, length.into(), 128]);
        // WITH_IMM, beside GRH.
        assert_eq!((wc[4] & 2 != 0, wc[6]), (imm.is_some(), source.get().into()));
        assert!(imm.is_none_or(|imm| wc[5] == imm.into()), "{imm:?}: {wc:?}");
    }

    /// A failure of the oldest send, after which the library flushes the rest by itself.
    fn fail(&mut self) {
        let (qp_handle, status) = (self.handle, SendStatus::Retry);
        let oldest = self.sends.pop_front().expect("a send that has not ended").0;
        let found = self.complete(&Cqe::Sent { qp_handle, consumed: oldest as u16, status });
        assert_eq!((found[0][0], found[0][1]), (oldest, Status::RetryExceeded.value().into()));
        let flushed = Status::Flushed.value().into();
        assert!(found[1..].iter().all(|wc| wc[1] == flushed), "{found:?}");
        let ids: Vec<_> = found[1..=self.sends.len()].iter().map(|wc| wc[0]).collect();
        assert!(ids.iter().copied().eq(self.sends.iter().map(|(id, _)| *id)), "{found:?}");
    }
}

/// Over several laps of each ring, then a failure.
fn compare(driven: Driven, (_, table, qp): (&str, Table, &str), seed: u64) {
    let datagrams = qp == "ud";
    let kinds = (any::<(u32, u32)>(), 0..4).prop_map(|((value, length), kind)| {
        let kind = match kind {
            0 => ReceivedKind::Send,
            1 => ReceivedKind::SendImm(value),
            2 => ReceivedKind::WriteImm(value),
            _ => ReceivedKind::SendInvalidate(warpverbs_rdma::Rkey(value)),
        };
        (kind, length)
    });
    let steps =
        (requests(datagrams), prop::collection::vec(sge(0..10_000_u32), 0..=6), kinds, 0..60_u32);
    let mut steps = values(steps, seed);
    let Some(mut run) = Run::new(driven, table, datagrams) else {
        eprintln!("SKIPPED: this libbnxt_re is a later one, which is driven otherwise");
        return;
    };
    let mut filled = 0;
    for _ in 0..700 {
        let (request, mut sges, (kind, length), chance) = steps();
        // The library leaves the entry of an earlier lap in a receive without any.
        if sges.is_empty() && run.received >= DEPTH {
            sges.push(Sge::default());
        }
        run.send(&request);
        if chance < 20 || run.sends.len() > 100 {
            run.complete_sends();
        }
        run.receive(&sges);
        if chance >= 10 || run.received - filled > 100 {
            run.complete_receive(filled, kind, length);
            filled += 1;
        }
    }
    assert!(run.cqes > 3 * 64 && filled > DEPTH, "{} CQEs, {filled} receives", run.cqes);
    for _ in 0..3 {
        run.send(&steps().0);
    }
    run.fail();
}

#[test]
fn the_library_agrees() {
    let (seed, folder) = (seed(), Folder::new());
    let Some(program) = program(&folder.0, None) else { return };
    let Some(library) = library() else {
        return skip("libbnxt_re-rdmav34.so is not installed (Debian: ibverbs-providers)");
    };
    // 57508, and a chip of the generation before it.
    for device in
        [("1750", Table::PsnExt, "rc"), ("16d7", Table::Psn, "rc"), ("1750", Table::PsnExt, "ud")]
    {
        let (chip, table, qp) = device;
        let arguments = [chip, &format!("{:x}", table.entry()), qp];
        compare(Driven::start(&program, &library, &arguments), device, seed);
    }
}
