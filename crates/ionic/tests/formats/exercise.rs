//! Any bytes through every parser: what the fuzz target and the corpus test run.
//!
//! The first byte of the input says which protocol it is, and whether the WQE is taken to stand at a fixed
//! place or at the one that its own index and colour name, so that the checks behind are reached.

use warpverbs_ionic::cqe::Cqe;
use warpverbs_ionic::doorbell::Doorbell;
use warpverbs_ionic::opcode::Protocol;
use warpverbs_ionic::recv;
use warpverbs_ionic::ring::{Position, counter};
use warpverbs_ionic::wqe::{Posted, WqeViolation, build, build_datagram, parse, parse_datagram};
use warpverbs_rdma::{Data, Status, WorkRequest};

/// Panics if a parser accepts what cannot be built again to the same meaning.
pub(crate) fn exercise(input: &[u8]) {
    let Some((&place, raw)) = input.split_first() else { return };
    let protocol = if place & 1 == 0 { Protocol::V2 } else { Protocol::V1 };
    let log_depth = place >> 2 & 0xf;
    let named = |index: &[u8; 8]| {
        let (index, depth) = (u64::from_le_bytes(*index), 1_u64 << log_depth);
        let old = raw.get(11).is_some_and(|flags| flags & 0x10 == 0);
        index % depth + if old { depth } else { 0 }
    };
    let counter = match raw.first_chunk() {
        Some(index) if place & 2 != 0 => named(index),
        _ => place.into(),
    };
    let at = Position { counter, log_depth };
    for parsed in [parse(raw, at, protocol), parse_datagram(raw, at, protocol)] {
        match parsed {
            Ok(posted) => accepted(raw.len(), at, protocol, &posted),
            Err(violation) => refused(&violation),
        }
    }
    match recv::parse(raw, at) {
        Ok(list) => {
            let (mut again, sges) = (vec![0; raw.len()], list.iter().collect::<Vec<_>>());
            // Only a length of more than 32 bits cannot be told again.
            if recv::build(&mut again, at, &sges).is_ok() {
                assert_eq!(recv::parse(&again, at), Ok(list));
            } else {
                assert!(list.byte_len() > u32::MAX.into());
            }
        }
        Err(violation) => refused(&violation),
    }
    if let Some(Ok(cqe)) = raw.first_chunk().map(Cqe::parse) {
        assert_eq!(Cqe::parse(&cqe.emit(true)), Ok(cqe));
    }
    if let Some(bytes) = raw.first_chunk() {
        doorbell(u64::from_le_bytes(*bytes), at);
    }
}

fn refused(violation: &WqeViolation) {
    assert_ne!(violation.field(), "");
    assert!(matches!(violation.status(), Status::LocalLength | Status::LocalQpOperation));
}

fn accepted(size: usize, at: Position, protocol: Protocol, posted: &Posted<'_>) {
    let sges: Vec<_> = posted.local.iter().chain(posted.result).collect();
    let data = match posted.inline {
        [] => Data::Sges(&sges),
        bytes => Data::Inline(bytes),
    };
    let request = WorkRequest { id: 0, op: posted.op, data, flags: posted.flags };
    let mut again = vec![0; size];
    let parsed = match posted.to {
        None => {
            build(&mut again, at, protocol, &request).expect("no longer than before");
            parse(&again, at, protocol)
        }
        Some(to) => {
            build_datagram(&mut again, at, protocol, to, &request).expect("likewise");
            parse_datagram(&again, at, protocol)
        }
    };
    assert_eq!(parsed.as_ref(), Ok(posted));
}

fn doorbell(word: u64, at: Position) {
    let Ok(doorbell) = Doorbell::parse(word) else { return };
    assert_eq!(doorbell.word(), word);
    if let Ok(now) = counter(doorbell.index, at.counter, at.log_depth) {
        assert!((at.counter..at.counter + (1 << at.log_depth)).contains(&now));
        assert_eq!(Position { counter: now, ..at }.index(), doorbell.index);
    }
}
