//! An unmodified libbnxt_re beside the formats here, without a device: whatever the library posts is what
//! was described, and it completes what CQEs from here say. `tests/c/library.c` drives the library, as far
//! as it is an early one.

use crate::offsets::{Field, built, entry_fields, fields};
use crate::request::{Payload, Request, request, sge};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use warpverbs_bnxt::cqe::Cqe;
use warpverbs_bnxt::doorbell::{Doorbell, Kind};
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_bnxt::ring::{Library, Mode, Ring};
use warpverbs_bnxt::status::{RecvStatus, SendStatus};
use warpverbs_bnxt::{recv, wqe};
use warpverbs_rdma::{Addressed, Mtu, Op, Qpn, ReceivedKind, Remote, SendFlags, Sge, Status};

/// As the program in C has them.
const QPN: u32 = 0x42;
const CQN: u32 = 5;
const DEPTH: u64 = 256;
const HANDLE: u32 = 0x5_4321;

/// The version of the library.
const LIBRARY: Library = Library::Early;

/// More than the library ever needs.
const DEADLINE: Duration = Duration::from_secs(120);

/// Says why nothing is compared; that is a failure where rdma-core has to be there.
fn skip(reason: &str) {
    assert!(std::env::var_os("WARPVERBS_REQUIRE_RDMA_CORE").is_none(), "{reason}");
    eprintln!("SKIPPED: {reason}");
}

/// The library as distributions install it.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let folders = folders.chain(["/usr/lib".into(), "/usr/lib64".into()]);
    let mut libraries = folders.map(|folder| folder.join("libibverbs/libbnxt_re-rdmav34.so"));
    libraries.find(|path| path.exists())
}

/// Compiles the program, or says why not.
fn program(folder: &Path) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/library.c");
    let program = folder.join("library");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    let header = "#include <infiniband/verbs.h>\n";
    let probe = folder.join("probe.c");
    std::fs::write(&probe, header).expect("write");
    let probed = Command::new(cc.get_program()).arg("-fsyntax-only").arg(probe).output();
    if !probed.is_ok_and(|output| output.status.success()) {
        skip("needs a C compiler and rdma-core's headers (Debian: gcc, libibverbs-dev)");
        return None;
    }
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-o"]).arg(&program);
    let output = cc.arg(source).args(["-libverbs", "-ldl"]).output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// The running program.
struct Driven {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Driven {
    fn start(program: &Path, library: &Path, (chip, table, qp): (&str, Table, &str)) -> Self {
        let mut command = Command::new(program);
        command.arg(library).args([chip, &format!("{:x}", table.entry()), qp]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let stdin = child.stdin.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, stdin, lines }
    }

    /// The words of the next line.
    fn line(&self) -> Vec<String> {
        let line = self.lines.recv_timeout(DEADLINE).expect("a line from the program");
        line.split_whitespace().map(String::from).collect()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the program reads");
    }
}

fn number(word: &str) -> u64 {
    u64::from_str_radix(word, 16).expect("a number")
}

fn bytes(word: &str) -> Vec<u8> {
    (0..word.len()).step_by(2).map(|at| number(&word[at..at + 2]) as u8).collect()
}

fn entries(sges: &[Sge]) -> String {
    let entry = |sge: &Sge| format!(" {:x} {:x} {:x}", sge.addr, sge.len, sge.lkey.0);
    format!("{:x}{}", sges.len(), sges.iter().map(entry).collect::<String>())
}

/// The line that posts a request of up to 6 entries, or inline bytes that count on.
fn line(request: &Request) -> String {
    // A datagram's destination, if it is one.
    let none = request.to.map_or(Remote::default(), |to| Remote::new(to.qpn.get().into(), to.qkey));
    let (opcode, imm, remote, compare, swap) = match request.op {
        Op::Write(remote) => (0, 0, remote, 0, 0),
        Op::WriteImm(remote, imm) => (1, imm, remote, 0, 0),
        Op::Send => (2, 0, none, 0, 0),
        Op::SendImm(imm) => (3, imm, none, 0, 0),
        Op::Read(remote) => (4, 0, remote, 0, 0),
        Op::CompareSwap { remote, compare, swap } => (5, 0, remote, compare, swap),
        Op::FetchAdd { remote, add } => (6, 0, remote, add, 0),
        Op::SendInvalidate(rkey) => (9, rkey.0, none, 0, 0),
    };
    let (inline, sges) = match &request.payload {
        Payload::Sges(sges) => (0, entries(sges)),
        Payload::Inline(bytes) => {
            let first = bytes.first().copied().unwrap_or(0);
            (8, entries(&[Sge::new(0, bytes.len() as u32, first.into())]))
        }
    };
    // FENCE 1, SIGNALED 2, SOLICITED 4, as ours.
    let flags = request.flags.bits() | inline;
    let (raddr, rkey) = (remote.addr, remote.rkey.0);
    format!("send {opcode:x} {flags:x} {imm:x} {raddr:x} {rkey:x} {compare:x} {swap:x} {sges}")
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
    let mut seeds = [0; 32];
    seeds[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seeds);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
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
    let Some(mut run) = Run::new(driven, table, datagrams) else {
        eprintln!("SKIPPED: this libbnxt_re is a later one, which is driven otherwise");
        return;
    };
    let mut filled = 0;
    for _ in 0..700 {
        let (request, mut sges, (kind, length), chance) =
            steps.new_tree(&mut runner).expect("a step").current();
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
        let (request, ..) = steps.new_tree(&mut runner).expect("a step").current();
        run.send(&request);
    }
    run.fail();
}

#[test]
fn the_library_agrees() {
    let seed = std::env::var("WARPVERBS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    eprintln!("WARPVERBS_SEED={seed}");
    let name = format!("library-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    if let Some(program) = program(&folder) {
        match library() {
            Some(library) => {
                // 57508, and a chip of the generation before it.
                for device in [
                    ("1750", Table::PsnExt, "rc"),
                    ("16d7", Table::Psn, "rc"),
                    ("1750", Table::PsnExt, "ud"),
                ] {
                    compare(Driven::start(&program, &library, device), device, seed);
                }
            }
            None => skip("libbnxt_re-rdmav34.so is not installed (Debian: ibverbs-providers)"),
        }
    }
    std::fs::remove_dir_all(folder).expect("remove");
}
