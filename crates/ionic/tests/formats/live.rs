//! An unmodified libionic beside the formats here, without a device: every byte that the library posts is the
//! encoder's, and it completes what CQEs from here say. `tests/c/library.c` drives the library.
//!
//! Debian 12 has none: it is that of a build of rdma-core, v61 or later, whose folder is in
//! `WARPVERBS_RDMA_CORE`.

use crate::driven::{Driven, Folder, bytes, entries, line, number, program, seed, values};
use crate::offsets::{built, parse_as};
use crate::request::{Payload, Request, request, sge};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::path::PathBuf;
use warpverbs_ionic::cqe::Cqe;
use warpverbs_ionic::doorbell::Doorbell;
use warpverbs_ionic::opcode::Protocol;
use warpverbs_ionic::recv;
use warpverbs_ionic::ring::Position;
use warpverbs_ionic::status::Failure;
use warpverbs_rdma::{Addressed, Op, Qpn, ReceivedKind, SendFlags, Sge, Status};

/// As the program in C has them.
const QPN: u32 = 0x42;
const CQN: u32 = 5;
const LOG_DEPTH: u8 = 8;
const HANDLE: u32 = 0x5_4321;
const STRIDE: usize = 128;

/// Flags of a completion, and its opcode for a receive.
const WITH_IMM: u64 = 2;
const WITH_INV: u64 = 8;
const RECV: u64 = 128;

/// The library of a build of rdma-core, and the folder of its headers.
fn library() -> Option<(PathBuf, PathBuf)> {
    let folder = PathBuf::from(std::env::var_os("WARPVERBS_RDMA_CORE")?);
    let files = std::fs::read_dir(folder.join("lib")).ok()?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.to_string_lossy().contains("/libionic-rdmav");
    Some((files.into_iter().find(is_it)?, folder.join("include")))
}

/// Requests that the library takes: solicited are those alone that fill receives.
fn requests(datagrams: bool) -> impl Strategy<Value = Request> {
    (request(), any::<(u8, u32, u32)>()).prop_map(move |(mut request, (first, qpn, qkey))| {
        let to = Addressed { handle: HANDLE, qpn: Qpn::truncate(qpn), qkey };
        request.op = match (request.op, datagrams) {
            (op @ (Op::Send | Op::SendImm(_)), _) => op,
            (_, true) => Op::Send,
            (op, false) => op,
        };
        request.to = datagrams.then_some(to);
        if matches!(request.op, Op::Write(_) | Op::Read(_)) || request.op.is_atomic() {
            request.flags.remove(SendFlags::SOLICITED);
        }
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

fn at(counter: u64) -> Position {
    Position { counter, log_depth: LOG_DEPTH }
}

fn rung(posted: u64) -> u64 {
    Doorbell { queue: Qpn::truncate(QPN), index: at(posted).index(), arm: None }.word()
}

/// The program, and what was posted and completed so far.
struct Run {
    driven: Driven,
    protocol: Protocol,
    datagrams: bool,
    log_cq: u8,
    sent: u64,
    received: u64,
    cqes: u64,
    /// Sends that have not ended, and whether they are signalled.
    sends: VecDeque<(u64, bool)>,
}

impl Run {
    fn new(driven: Driven, protocol: Protocol, datagrams: bool) -> Self {
        let hello = driven.line();
        let log_cq = number(&hello[1]).ilog2() as u8;
        let (sent, received, cqes, sends) = (0, 0, 0, VecDeque::new());
        Self { driven, protocol, datagrams, log_cq, sent, received, cqes, sends }
    }

    fn send(&mut self, request: &Request) {
        self.driven.say(&line(request));
        let answer = self.driven.line();
        let [_, raw, _, doorbell] = &answer[..] else { panic!("{answer:?}") };
        let mut expected = built(request, at(self.sent), self.protocol);
        expected.resize(STRIDE, 0);
        let raw = bytes(raw);
        assert_eq!(raw, expected, "{request:?}");
        let posted = parse_as(request, &raw, at(self.sent), self.protocol).expect("well formed");
        assert!(request.is(&posted), "{request:?}");
        let signaled = request.flags.contains(SendFlags::SIGNALED);
        self.sends.push_back((self.sent, signaled));
        self.sent += 1;
        assert_eq!(number(doorbell), rung(self.sent));
    }

    fn receive(&mut self, sges: &[Sge]) {
        self.driven.say(&format!("recv {}", entries(sges)));
        let answer = self.driven.line();
        let [_, raw, _, doorbell] = &answer[..] else { panic!("{answer:?}") };
        let mut expected = [0xff; STRIDE];
        recv::build(&mut expected, at(self.received), sges).expect("it fits");
        assert_eq!(bytes(raw), expected, "{sges:?}");
        self.received += 1;
        assert_eq!(number(doorbell), rung(self.received));
    }

    /// Writes a CQE, and gives what the library reports: number, status, length, opcode, flags, immediate,
    /// sender.
    fn complete(&mut self, cqe: &Cqe) -> Vec<Vec<u64>> {
        let place = Position { counter: self.cqes, log_depth: self.log_cq };
        let text: String =
            cqe.emit(place.color()).iter().map(|byte| format!("{byte:02x}")).collect();
        self.driven.say(&format!("cqe {text}"));
        self.cqes += 1;
        let mut found = Vec::new();
        loop {
            let line = self.driven.line();
            if line[0] == "wc" {
                found.push(line[1..].iter().map(|word| number(word)).collect());
                continue;
            }
            // It tells now and then how far it has come.
            let word = number(&line[1]);
            let bell = Doorbell::parse(word).expect("a doorbell");
            assert!(word == 0 || (bell.queue.get(), bell.arm) == (CQN, None), "{word:x}");
            return found;
        }
    }

    fn complete_sends(&mut self) {
        let qpn = Qpn::truncate(QPN);
        let ended: Vec<_> = self.sends.drain(..).collect();
        let cqes: Vec<_> = match self.datagrams {
            // One for each, whether it is signalled or not.
            true => ended
                .iter()
                .map(|(id, _)| Cqe::Local { qpn, index: at(*id).index(), status: Ok(()) })
                .collect(),
            false => vec![Cqe::Messages { qpn, msn: self.sent as u32, status: Ok(()) }],
        };
        let found: Vec<_> = cqes.iter().flat_map(|cqe| self.complete(cqe)).collect();
        let found: Vec<_> = found.iter().map(|wc| (wc[0], wc[1])).collect();
        let signaled = ended.iter().filter(|(_, signaled)| *signaled);
        let expected: Vec<_> = signaled.map(|(id, _)| (*id, 0)).collect();
        assert_eq!(found, expected);
    }

    /// Completes receive `id`, the oldest.
    fn complete_receive(&mut self, id: u64, kind: ReceivedKind, (length, source): (u32, u32)) {
        let (qpn, index, source) = (Qpn::truncate(QPN), at(id).index(), Qpn::truncate(source));
        let ipv4 = id.is_multiple_of(2);
        let cqe = Cqe::Received { qpn, index, kind, source, ipv4, status: Ok(length) };
        let found = self.complete(&cqe);
        let [wc] = &found[..] else { panic!("{found:?}") };
        assert_eq!(wc[..3], [id, 0, length.into()]);
        // RECV_RDMA_WITH_IMM is the next one.
        assert_eq!(wc[3], RECV + u64::from(!kind.fills_receive()));
        let flags = wc[4] & (WITH_IMM | WITH_INV);
        match kind {
            ReceivedKind::SendImm(imm) | ReceivedKind::WriteImm(imm) => {
                assert_eq!((flags, wc[5]), (WITH_IMM, imm.into()));
            }
            // A key is in the order of the CPU, in the same place.
            ReceivedKind::SendInvalidate(key) => {
                assert_eq!((flags, (wc[5] as u32).swap_bytes()), (WITH_INV, key.0));
            }
            ReceivedKind::Send => assert_eq!(flags, 0),
        }
        assert_eq!(wc[6], source.get().into());
    }

    /// A failure of the oldest send; the rest is flushed when a CQE says so.
    fn fail(&mut self) {
        let (qpn, oldest) = (Qpn::truncate(QPN), self.sends.pop_front().expect("a send").0);
        let status = Err(Failure::Retry);
        let cqe = match self.datagrams {
            true => Cqe::Local { qpn, index: at(oldest).index(), status },
            false => Cqe::Messages { qpn, msn: oldest as u32 + 1, status },
        };
        let mut found = self.complete(&cqe);
        found.extend(self.complete(&Cqe::Local { qpn, index: 0, status: Err(Failure::Flushed) }));
        let found: Vec<_> = found.iter().map(|wc| (wc[0], wc[1])).collect();
        let flushed = self.sends.iter().map(|(id, _)| (*id, u64::from(Status::Flushed.value())));
        let failed = (oldest, u64::from(Status::RetryExceeded.value()));
        let expected: Vec<_> = std::iter::once(failed).chain(flushed).collect();
        assert_eq!(found, expected);
    }
}

/// Over several laps of each ring, then a failure.
fn compare(driven: Driven, protocol: Protocol, datagrams: bool, seed: u64) {
    let kinds = (any::<u32>(), 0..4).prop_map(move |(value, kind)| match kind {
        1 => ReceivedKind::SendImm(value),
        2 if !datagrams => ReceivedKind::WriteImm(value),
        3 if !datagrams => ReceivedKind::SendInvalidate(warpverbs_rdma::Rkey(value)),
        _ => ReceivedKind::Send,
    });
    let list = prop::collection::vec(sge(0..10_000_u32), 0..=6);
    let steps = (requests(datagrams), list, kinds, any::<(u32, u32)>(), 0..60_u32);
    let mut steps = values(steps, seed);
    let mut run = Run::new(driven, protocol, datagrams);
    let mut filled = 0;
    for _ in 0..700 {
        let (request, sges, kind, arrived, chance) = steps();
        run.send(&request);
        if chance < 20 || run.sends.len() > 100 {
            run.complete_sends();
        }
        run.receive(&sges);
        if chance >= 10 || run.received - filled > 100 {
            run.complete_receive(filled, kind, arrived);
            filled += 1;
        }
    }
    assert!(run.cqes > 2 << run.log_cq && filled > 2 << LOG_DEPTH, "{} CQEs", run.cqes);
    for _ in 0..3 {
        run.send(&steps().0);
    }
    run.fail();
}

#[test]
fn the_library_agrees() {
    let (seed, folder) = (seed(), Folder::new());
    let Some((library, headers)) = library() else {
        // Debian 12, which CI has, is without.
        eprintln!("SKIPPED: WARPVERBS_RDMA_CORE names no build of rdma-core that has libionic");
        return;
    };
    let Some(program) = program(&folder.0, Some(&headers)) else { return };
    for (protocol, number) in [(Protocol::V1, "1"), (Protocol::V2, "2")] {
        for qp in ["rc", "ud"] {
            let driven = Driven::start(&program, &library, &[number, qp]);
            compare(driven, protocol, qp == "ud", seed);
        }
    }
}
