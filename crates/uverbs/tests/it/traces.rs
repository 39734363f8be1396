//! Calls of real programs, recorded by `warpverbs run --record`, answered again.

use crate::common::device::{Model, Seen};
use std::cell::RefCell;
use std::path::Path;
use warpverbs_rdma::{Mtu, QpState};
use warpverbs_uverbs::{BnxtLibrary, Context, Driver, Errno, Queues, UserMemory, VERBS_IOCTL};

/// One recorded call.
#[derive(Debug, Default)]
struct Recorded {
    reads: Vec<(u64, Vec<u8>)>,
    writes: Vec<(u64, usize)>,
    errno: i32,
}

fn parse(text: &str) -> Vec<Recorded> {
    let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let mut calls: Vec<Recorded> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let last = calls.last_mut();
        match (words.as_slice(), last) {
            (["call"], _) => calls.push(Recorded::default()),
            (["read", at, bytes], Some(call)) => {
                let bytes = (0..bytes.len() / 2).map(|i| hex(&bytes[2 * i..2 * i + 2]) as u8);
                call.reads.push((hex(at), bytes.collect()));
            }
            (["write", at, len], Some(call)) => call.writes.push((hex(at), len.parse().unwrap())),
            (["=", errno], Some(call)) => call.errno = errno.parse().unwrap(),
            _ => panic!("{line}"),
        }
    }
    calls
}

/// The memory that a call saw.
struct Replayed<'a> {
    call: &'a Recorded,
    writes: RefCell<Vec<(u64, usize)>>,
}

impl UserMemory for Replayed<'_> {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        let is = |(at, bytes): &&(u64, Vec<u8>)| *at == address && bytes.len() == out.len();
        let found = self.call.reads.iter().find(is);
        let (_, bytes) = found.unwrap_or_else(|| panic!("{} bytes at {address:x}", out.len()));
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.writes.borrow_mut().push((address, bytes.len()));
        Ok(())
    }
}

/// Versions of rdma-core that were recorded.
const VERSIONS: [u32; 4] = [44, 50, 59, 64];
/// Those of bnxt_re and of ionic.
const BNXT: [u32; 4] = [44, 50, 56, 64];
const IONIC: [u32; 2] = [61, 64];

/// Answers every call of each version's trace, and compares errno and where the answer goes.
fn replay(name: &str) -> impl Iterator<Item = (Model, Context<Model>)> {
    VERSIONS
        .into_iter()
        .map(move |version| replay_one(&format!("rdma-core-{version}/{name}"), Model::default()))
}

/// As [`replay`], for bnxt_re.
fn replay_bnxt(name: &str) -> impl Iterator<Item = (Model, Context<Model>)> {
    BNXT.into_iter()
        .map(move |version| replay_one(&format!("rdma-core-{version}-bnxt/{name}"), Model::bnxt()))
}

/// As [`replay`], for ionic.
fn replay_ionic(name: &str) -> impl Iterator<Item = (Model, Context<Model>)> {
    IONIC.into_iter().map(move |version| {
        replay_one(&format!("rdma-core-{version}-ionic/{name}"), Model::ionic())
    })
}

fn replay_one(name: &str, model: Model) -> (Model, Context<Model>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let calls = parse(&std::fs::read_to_string(folder.join(name)).unwrap());
    assert!(calls.len() >= 7, "{name}");
    // As they were in the programs that were recorded.
    model.fd.set(if model.profile.driver == Driver::Mlx5 { 7 } else { 5 });
    model.uars.set(1);
    let mut context = Context::new(model.clone());
    for (i, call) in calls.iter().enumerate() {
        let memory = Replayed { call, writes: RefCell::default() };
        // The first that is read is the header.
        let answered = context.ioctl(&memory, VERBS_IOCTL, call.reads[0].0);
        let errno = answered.as_ref().err().map_or(0, |refusal| refusal.errno.number());
        assert_eq!(errno, call.errno, "{name}, call {i}: {answered:?}");
        assert_eq!(memory.writes.into_inner(), call.writes, "{name}, call {i}");
    }
    (model, context)
}

#[test]
fn ibv_devinfo_opens_and_asks() {
    let name = "ibv_devinfo.trace";
    for (model, context) in replay(name).chain(replay_bnxt(name)).chain(replay_ionic(name)) {
        // The channel of events is left; it ends with the file.
        assert_eq!(model.live.get(), 1);
        drop(context);
        assert_eq!(model.live.get(), 0);
    }
}

#[test]
fn ibv_rc_pingpong_brings_a_qp_to_ready() {
    for (model, _context) in replay("ibv_rc_pingpong.trace") {
        let seen = model.seen.borrow();
        // 500 receives of one entry; one send of one entry.
        let qp = seen.qp.unwrap();
        assert_eq!((qp.rq, qp.cap.max_recv_wr, qp.cap.max_send_wr), (Some((9, 4)), 500, 1));
        assert_eq!(seen.cq.unwrap().log_size, 9);
        assert_eq!(seen.mr.unwrap().length, 4096);
        let [(init, _), (rtr, to_rtr), (rts, to_rts)] = seen.attrs.as_slice() else {
            panic!("{} transitions", seen.attrs.len())
        };
        assert_eq!((*init, *rtr, *rts), (QpState::Init, QpState::Rtr, QpState::Rts));
        assert_eq!((to_rtr.mtu, to_rtr.min_rnr_timer), (Some(Mtu::B1024), Some(12)));
        assert_eq!((to_rts.timeout, to_rts.retry, to_rts.rnr_retry), (Some(14), Some(7), Some(7)));
        let gid = to_rtr.dgid.unwrap();
        assert_eq!((&gid[10..13], gid.len()), (&[255, 255, 127][..], 16));
    }
}

#[test]
fn perftest_makes_an_srq() {
    for (model, _context) in replay("ib_send_bw_srq.trace") {
        let seen = model.seen.borrow();
        let srq = seen.srq.unwrap();
        assert_eq!((srq.log_stride, srq.log_size), (5, 8));
        assert_eq!(seen.qp.unwrap().rq, None);
    }
}

#[test]
fn libbnxt_re_does_the_same() {
    for (version, (model, _context)) in BNXT.into_iter().zip(replay_bnxt("ibv_rc_pingpong.trace")) {
        let seen = model.seen.borrow();
        // 500 receives; one send, and 129 that the library leaves free.
        let qp = seen.qp.unwrap();
        assert_eq!((qp.rq, qp.log_sq), (Some((9, 7)), Some(8)));
        let library = if version < 50 { BnxtLibrary::Early } else { BnxtLibrary::Current };
        let Queues::Bnxt { library: found, .. } = qp.queues else { panic!("{qp:?}") };
        assert_eq!(found, library, "v{version}");
        // Later ones ask for twice the CQEs.
        let log_cqes = if version < 56 { 9 } else { 10 };
        assert_eq!((seen.cq.unwrap().log_size, seen.mr.unwrap().length), (log_cqes, 4096));
        assert_eq!(states(&seen), [QpState::Init, QpState::Rtr, QpState::Rts]);
    }
    let (model, _context) = replay_one("rdma-core-44-bnxt/ib_send_bw_srq.trace", Model::bnxt());
    let seen = model.seen.borrow();
    let srq = seen.srq.unwrap();
    assert_eq!((srq.log_stride, srq.ring, seen.qp.unwrap().rq), (7, true, None));
}

#[test]
fn libionic_does_the_same() {
    for (model, _context) in replay_ionic("ibv_rc_pingpong.trace") {
        let seen = model.seen.borrow();
        // A page of sends at least; 500 receives of one entry; 501 CQEs, and 100 that the library adds.
        let qp = seen.qp.unwrap();
        assert_eq!((qp.log_sq, qp.rq), (Some(6), Some((9, 6))));
        assert!(matches!(qp.queues, Queues::Ionic { log_wqe: 6, .. }), "{qp:?}");
        assert_eq!((seen.cq.unwrap().log_size, seen.mr.unwrap().length), (10, 4096));
        assert_eq!(states(&seen), [QpState::Init, QpState::Rtr, QpState::Rts]);
    }
}

/// The states that a QP was brought to.
fn states(seen: &Seen) -> Vec<QpState> {
    seen.attrs.iter().map(|(state, _)| *state).collect()
}
