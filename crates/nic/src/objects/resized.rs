//! Tests of CQs of bnxt_re that are resized.

use super::cq::{CompletionQueue, CqConfig, Unwritten};
use crate::NicError;
use crate::format::{
    BnxtLibrary, CqMode, CqeRing, CqeSize, Dialect, Done, Ended, Names, Qpn, ReceivedKind,
};
use std::sync::atomic::Ordering;
use warpverbs_mem::{HostBuf, Region};

const DIALECT: Dialect = Dialect::Bnxt(BnxtLibrary::Current);

fn buffer(log_size: u8) -> Region {
    HostBuf::region(32 << log_size).unwrap()
}

fn ring(buf: &Region, log_size: u8) -> CqeRing {
    CqeRing::new(buf, (DIALECT, CqMode::Ring), log_size, CqeSize::B64).unwrap()
}

fn queue(dbr: &Region, buf: &Region) -> CompletionQueue {
    let config = CqConfig {
        dialect: DIALECT,
        mode: CqMode::Ring,
        log_size: 2,
        cqe_size: CqeSize::B64,
        buf: buf.clone(),
        dbr: dbr.clone(),
        ignore_overrun: false,
        notice: None,
    };
    CompletionQueue::new(&config).unwrap()
}

fn complete(cq: &mut CompletionQueue, index: u64) -> Result<(), Unwritten> {
    let kind = ReceivedKind::Send;
    let what = Ended::Received { kind, len: 0, srqn: 0, solicited: false, from: None };
    let done = Done { qpn: Qpn::new(5).unwrap(), index, ended: 0, what };
    cq.publish(&done, Names::NONE, None)
}

/// Types of CQEs.
const RECEIVED: u8 = 1;
const CUT_OFF: u8 = 0xf;

/// Type and number of the CQE at a place, with the phase that it has.
fn entry(buf: &Region, at: u64, phase: u8) -> (u8, u8) {
    let mut bytes = [0; 32];
    buf.read(32 * at, &mut bytes).unwrap();
    assert_eq!(bytes[24] & 1, phase, "entry {at}");
    (bytes[24] >> 1 & 0xf, bytes[28])
}

/// Kinds of doorbells.
const CONSUMED: u64 = 4;
const CUT_OFF_ACK: u64 = 9;

/// Rings with the counter of a ring of 2^`log_size`.
fn tell(dbr: &Region, kind: u64, log_size: u8, counter: u64) {
    let at = if kind == CUT_OFF_ACK { 16 } else { 0 };
    let (index, epoch) = (counter & ((1 << log_size) - 1), counter >> log_size & 1);
    let word = kind << 60 | 1 << 58 | 7 << 32 | epoch << 24 | index;
    dbr.atomic_u64(at).unwrap().store(word.to_le(), Ordering::Release);
}

#[test]
fn a_ring_ends_with_a_cqe_and_the_next_begins_anew() {
    let (dbr, old, new) = (HostBuf::region(24).unwrap(), buffer(2), buffer(3));
    let mut cq = queue(&dbr, &old);
    (0..6).for_each(|index| {
        tell(&dbr, CONSUMED, 2, index);
        complete(&mut cq, index).unwrap();
    });
    tell(&dbr, CONSUMED, 2, 5);
    cq.resize(&mut ring(&new, 3)).unwrap();
    // The seventh entry, in the second lap.
    assert_eq!(entry(&old, 2, 0).0, CUT_OFF);
    // The consumer is still in the old ring, where it may tell any index.
    for index in 0..8 {
        tell(&dbr, CONSUMED, 2, 5 + index % 3);
        complete(&mut cq, index).unwrap();
        assert_eq!(entry(&new, index, 1), (RECEIVED, index as u8));
    }
    dbr.atomic_u64(0).unwrap().store(0, Ordering::Release);
    tell(&dbr, CUT_OFF_ACK, 2, 7);
    tell(&dbr, CONSUMED, 3, 8);
    (8..16).for_each(|index| complete(&mut cq, index).unwrap());
    assert_eq!(complete(&mut cq, 16), Err(Unwritten), "the new ring is full");
}

#[test]
fn a_ring_whose_end_nobody_saw_fills() {
    let (dbr, old, new) = (HostBuf::region(24).unwrap(), buffer(2), buffer(3));
    let mut cq = queue(&dbr, &old);
    cq.resize(&mut ring(&new, 3)).unwrap();
    (0..8).for_each(|index| complete(&mut cq, index).unwrap());
    tell(&dbr, CONSUMED, 3, 8);
    assert_eq!(complete(&mut cq, 8), Err(Unwritten));
}

#[test]
fn a_ring_without_room_for_its_end_is_kept() {
    let (dbr, old) = (HostBuf::region(24).unwrap(), buffer(2));
    let mut cq = queue(&dbr, &old);
    (0..4).for_each(|index| complete(&mut cq, index).unwrap());
    let full = cq.resize(&mut ring(&buffer(3), 3));
    assert!(matches!(full, Err(NicError::CqFull { outstanding: 4, .. })), "{full:?}");
    let mut cq = queue(&HostBuf::region(16).unwrap(), &buffer(2));
    let what = "a resized CQ";
    assert_eq!(cq.resize(&mut ring(&buffer(3), 3)), Err(NicError::NotOfFormat { what }));
}
