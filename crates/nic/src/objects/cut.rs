//! The end of a ring of a resized CQ, of a format that has no doorbell record.

use super::cq::CqConfig;
use crate::format::Dialect;
use std::sync::atomic::{AtomicU64, Ordering};
use warpverbs_mem::Region;

/// Of bnxt_re: the place of the doorbell by which the consumer says that it has seen the end of a ring and goes
/// on in the next one.
#[derive(Debug)]
pub(super) struct Cut {
    place: Region,
    /// The ring has ended, and its consumer has not said so: what it tells is of that ring.
    awaited: bool,
}

impl Cut {
    pub(super) fn new(config: &CqConfig) -> Option<Self> {
        let place = config.dbr.slice(16, 8).ok().filter(|place| place.atomic_u64(0).is_ok())?;
        matches!(config.dialect, Dialect::Bnxt(_)).then_some(Self { place, awaited: false })
    }

    fn word(&self) -> Option<&AtomicU64> {
        self.place.atomic_u64(0).ok()
    }

    /// The ring ends.
    pub(super) fn begin(&mut self) {
        if let Some(word) = self.word() {
            word.store(0, Ordering::Release);
        }
        self.awaited = true;
    }

    /// Whether the consumer tells of the ring that is.
    pub(super) fn is_over(&mut self) -> bool {
        self.awaited &= self.word().is_some_and(|word| word.load(Ordering::Acquire) == 0);
        !self.awaited
    }
}

#[cfg(test)]
mod tests {
    use super::super::cq::{CompletionQueue, Unwritten};
    use super::*;
    use crate::NicError;
    use crate::format::{
        BnxtLibrary, CqMode, CqeRing, CqeSize, Done, Ended, Names, Qpn, ReceivedKind,
    };
    use warpverbs_bnxt::cqe::Cqe;
    use warpverbs_bnxt::doorbell::Kind;
    use warpverbs_bnxt::ring::Ring;
    use warpverbs_mem::HostBuf;

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
        cq.publish(&done, Names { handle: None, mask: u64::MAX }, None)
    }

    /// The CQE at a place, with the phase that it has.
    fn entry(buf: &Region, at: u64, phase: bool) -> Cqe {
        let mut bytes = [0; 32];
        buf.read(32 * at, &mut bytes).unwrap();
        assert_eq!(bytes[24] & 1 == 1, phase, "entry {at}");
        Cqe::parse(&bytes).unwrap()
    }

    fn tell(dbr: &Region, kind: Kind, log_size: u8, counter: u64) {
        let at = if kind == Kind::CutOffAck { 16 } else { 0 };
        let ring = Ring::new(1 << log_size, BnxtLibrary::Current).unwrap();
        let word = ring.doorbell(kind, 7, counter).word();
        dbr.atomic_u64(at).unwrap().store(word.to_le(), Ordering::Release);
    }

    #[test]
    fn a_ring_ends_with_a_cqe_and_the_next_begins_anew() {
        let (dbr, old, new) = (HostBuf::region(24).unwrap(), buffer(2), buffer(3));
        let mut cq = queue(&dbr, &old);
        (0..6).for_each(|index| {
            tell(&dbr, Kind::Completion, 2, index);
            complete(&mut cq, index).unwrap();
        });
        tell(&dbr, Kind::Completion, 2, 5);
        cq.resize(&mut ring(&new, 3)).unwrap();
        // The seventh entry, in the second lap.
        assert_eq!(entry(&old, 2, false), Cqe::CutOff { toggle: 1 });
        // The consumer is still in the old ring, where it may tell any index.
        for index in 0..8 {
            tell(&dbr, Kind::Completion, 2, 5 + index % 3);
            complete(&mut cq, index).unwrap();
            let Cqe::Received { id, .. } = entry(&new, index, true) else { panic!("{index}") };
            assert_eq!(u64::from(id), index);
        }
        dbr.atomic_u64(0).unwrap().store(0, Ordering::Release);
        tell(&dbr, Kind::CutOffAck, 2, 7);
        tell(&dbr, Kind::Completion, 3, 8);
        (8..16).for_each(|index| complete(&mut cq, index).unwrap());
        assert_eq!(complete(&mut cq, 16), Err(Unwritten), "the new ring is full");
    }

    #[test]
    fn a_ring_whose_end_nobody_saw_fills() {
        let (dbr, old, new) = (HostBuf::region(24).unwrap(), buffer(2), buffer(3));
        let mut cq = queue(&dbr, &old);
        cq.resize(&mut ring(&new, 3)).unwrap();
        (0..8).for_each(|index| complete(&mut cq, index).unwrap());
        tell(&dbr, Kind::Completion, 3, 8);
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
}
