//! Any bytes through every parser: what the fuzz target and the corpus test run.

use warpverbs_bnxt::cqe::Cqe;
use warpverbs_bnxt::doorbell::Doorbell;
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_bnxt::recv;
use warpverbs_bnxt::ring::{Library, Ring};
use warpverbs_bnxt::wqe::{Posted, build, build_datagram, parse, parse_datagram, peek};
use warpverbs_rdma::{Data, Status, WorkRequest};

/// Panics if a parser accepts what cannot be built again to the same meaning.
pub(crate) fn exercise(raw: &[u8]) {
    let current = parse(raw, Library::Current);
    // Only the place of one operand differs.
    assert_eq!(parse(raw, Library::Early).err(), current.as_ref().err().copied());
    for parsed in [current, parse_datagram(raw)] {
        match parsed {
            Ok(posted) => accepted(raw, &posted),
            Err(violation) => {
                assert_ne!(violation.field(), "");
                let status = violation.status();
                assert!(matches!(status, Status::LocalLength | Status::LocalQpOperation));
            }
        }
    }
    if let Ok((id, list)) = recv::parse(raw) {
        let (mut buf, sges) = ([0; 255 * 16], list.iter().collect::<Vec<_>>());
        let again = recv::build(&mut buf, id, &sges).expect("no more entries than before");
        assert_eq!(recv::parse(again), Ok((id, list)));
    }
    if let Some(Ok(cqe)) = raw.first_chunk().map(Cqe::parse) {
        assert_eq!(Cqe::parse(&cqe.emit(true)), Ok(cqe));
    }
    if let Some(bytes) = raw.first_chunk() {
        doorbell(u64::from_le_bytes(*bytes), raw);
    }
    for table in [Table::Psn, Table::PsnExt, Table::Msn] {
        if let Some(Ok(packets)) = raw.get(..table.entry()).map(|entry| Packets::read(table, entry))
        {
            let mut entry = vec![0; table.entry()];
            packets.write(table, 0, &mut entry).expect("the size of an entry");
            assert_eq!(Packets::read(table, &entry), Ok(packets));
        }
    }
}

fn accepted(raw: &[u8], posted: &Posted<'_>) {
    if let Some(first) = raw.first_chunk() {
        assert!(usize::from(peek(first)) * 16 <= raw.len());
    }
    let sges: Vec<_> = posted.local.iter().chain(posted.result).collect();
    let data = match posted.inline {
        [] => Data::Sges(&sges),
        bytes => Data::Inline(bytes),
    };
    let request = WorkRequest { id: 0, op: posted.op, data, flags: posted.flags };
    let mut buf = [0; 255 * 16];
    let again = match posted.to {
        None => {
            let again = build(&mut buf, &request).expect("no more slots than before");
            parse(again, Library::Current)
        }
        Some(to) => parse_datagram(build_datagram(&mut buf, to, &request).expect("likewise")),
    };
    assert_eq!(again.as_ref(), Ok(posted));
}

/// A doorbell of a ring whose size and counter are taken from the bytes, too.
fn doorbell(word: u64, raw: &[u8]) {
    let Ok(doorbell) = Doorbell::parse(word) else { return };
    assert_eq!(doorbell.word(), word);
    let number = |at: usize| raw.get(at).copied().unwrap_or(0);
    let (size, before) = (1 + u32::from(number(8)), u64::from(number(9)) << (number(10) % 40));
    for library in [Library::Early, Library::Current] {
        let ring = Ring::new(size, library).expect("a size");
        if let Ok(counter) = ring.counter(&doorbell, before) {
            assert!((before..=before + u64::from(size)).contains(&counter));
            assert_eq!(ring.doorbell(doorbell.kind, doorbell.queue, counter).index, doorbell.index);
        }
    }
}
