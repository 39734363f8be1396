//! The ring of a CQ: where the next CQE goes and how it is written, and indexes of CQEs as others give
//! them.

use crate::NicError;
use crate::format::{Dialect, Done, Ended, Names, bnxt, ionic, mlx5};
use std::mem::offset_of;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::ring::Library;
use warpverbs_mem::{Block, CompletionRecord, CompletionRing, MemError, Region};
use warpverbs_mlx5::cqe::{Cqe, Cqe64, CqeFormat, owner_bit};
use warpverbs_mlx5::export::CqMode;
use warpverbs_rdma::is_odd_lap;

/// Bytes of an entry of a CQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CqeSize {
    /// 64: the CQE alone.
    #[default]
    B64,
    /// 128: the CQE is the second half; the first is written only where payload goes into it.
    B128,
}

impl CqeSize {
    /// The number.
    pub fn bytes(self) -> usize {
        match self {
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }

    /// Bytes of payload that an entry holds in place of memory.
    pub(crate) fn payload(self) -> usize {
        self.bytes() / 2
    }
}

/// The entries of a CQ, as the NIC writes them.
#[derive(Debug)]
pub(crate) struct CqeRing {
    ring: CompletionRing,
    dialect: Dialect,
    mode: CqMode,
    log_size: u8,
    /// 1 if entries have 128 bytes, otherwise 0.
    wide: u8,
    /// CQEs that fit. Where consumers tell a place alone, one less than entries: a ring that was consumed
    /// entirely would look as one of which nothing was.
    room: u64,
    /// CQEs written so far.
    pub(crate) produced: u64,
    /// Rings before this one.
    rings: u8,
}

impl CqeRing {
    /// The first 2^`log_size` entries of `buf`.
    pub(crate) fn new(
        buf: &Region,
        (dialect, mode): (Dialect, CqMode),
        log_size: u8,
        size: CqeSize,
    ) -> Result<Self, NicError> {
        let (what, value, max) = ("log_size of a CQ", u64::from(log_size), 22);
        if value > max {
            return Err(NicError::OutOfRange { what, value, min: 0, max });
        }
        let wide = u8::from(size == CqeSize::B128);
        let ring = match dialect {
            Dialect::Mlx5 => CompletionRing::new(buf, log_size + wide),
            Dialect::Bnxt(_) | Dialect::Ionic => CompletionRing::of_32(buf, log_size),
        };
        let ring = ring.map_err(|cause| NicError::Memory { what: "CQ buffer", cause })?;
        let told_by_place = matches!(dialect, Dialect::Bnxt(Library::Early) | Dialect::Ionic);
        let room = (1 << log_size) - u64::from(told_by_place);
        Ok(Self { ring, dialect, mode, log_size, wide, room, produced: 0, rings: 0 })
    }

    /// Entries.
    pub(crate) fn depth(&self) -> u64 {
        1 << self.log_size
    }

    /// Whether there is room for a CQE beside those that are not `consumed`.
    #[inline]
    pub(crate) fn has_room(&self, consumed: u64) -> bool {
        self.produced - consumed < self.room
    }

    /// Writes a CQE, of a queue with these names, with payload that fits.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        done: &Done,
        names: Names,
        payload: Option<&Region>,
    ) -> Result<(), MemError> {
        if self.dialect != Dialect::Mlx5 {
            return self.publish_32(done, names);
        }
        let mut bytes = mlx5::cqe(done).emit(owner_bit(self.produced, self.log_size));
        if let Some(user_index) = names.handle {
            // CQEs of version 1: it stands where version 0 has the number of an SRQ.
            let place = offset_of!(Cqe64, srqn_uidx);
            bytes[place..place + 4].copy_from_slice(&(user_index as u32).to_be_bytes());
        }
        if let Some(payload) = payload {
            self.add_payload(payload, &mut bytes)?;
        }
        self.write(bytes)
    }

    /// Writes a CQE of 32 bytes.
    #[inline(never)]
    fn publish_32(&mut self, done: &Done, names: Names) -> Result<(), MemError> {
        // In a CQ of one entry that is overwritten, the failure is what its readers look for.
        if self.mode == CqMode::Collapsed && matches!(done.what, Ended::Queue { .. }) {
            return Ok(());
        }
        let first_lap = !is_odd_lap(self.produced, self.log_size);
        let bytes = match self.dialect {
            Dialect::Ionic => ionic::cqe(done, names).emit(first_lap),
            _ => bnxt::cqe(done, names).emit(first_lap),
        };
        self.write_32(bytes)
    }

    fn write_32(&mut self, bytes: [u8; 32]) -> Result<(), MemError> {
        let cqe: [u64; 4] = zerocopy::transmute!(bytes);
        let index = if self.mode == CqMode::Collapsed { 0 } else { self.produced };
        self.ring.publish(index, &cqe)?;
        self.produced += 1;
        Ok(())
    }

    /// CQEs consumed as a record says, of which `before` were consumed already.
    pub(crate) fn consumed(&self, record: &CompletionRecord, before: u64) -> u64 {
        let said = match self.dialect {
            Dialect::Mlx5 => return consumed(record, before),
            // It was never rung.
            _ if record.word() == 0 => return before,
            Dialect::Bnxt(library) => {
                let ring = bnxt::ring(1 << self.log_size, library);
                bnxt::told(ring, record.word(), Kind::Completion, before)
            }
            Dialect::Ionic => ionic::told(record.word(), before, self.log_size),
        };
        // One that says nothing leaves the consumer where it was.
        said.map_or(before, |(_, consumed)| consumed)
    }

    /// CQEs that are not consumed move to the next ring, whose indexes go on; otherwise they stay where they
    /// are, and it begins anew.
    pub(crate) fn moves(&self) -> bool {
        self.dialect == Dialect::Mlx5
    }

    /// Writes the last CQE, which says that `next` goes on after it.
    pub(crate) fn go_on_in(&mut self, next: &mut Self) -> Result<(), MemError> {
        next.rings = self.rings.wrapping_add(1);
        if !self.moves() {
            let first_lap = !is_odd_lap(self.produced, self.log_size);
            return self.write_32(bnxt::cut_off(next.rings).emit(first_lap));
        }
        let written = self.write(Cqe::emit_resized(owner_bit(self.produced, self.log_size)));
        next.produced = self.produced;
        written
    }

    /// Puts payload into the CQE, or into the half of the entry before it.
    #[cold]
    fn add_payload(&mut self, payload: &Region, cqe: &mut [u8; 64]) -> Result<(), MemError> {
        let mut first = [0; 64];
        let len = payload.len().min(first.len());
        // The memory is the NIC's own.
        let _read = payload.read(0, &mut first[..len]);
        if len <= 32 {
            cqe[..32].copy_from_slice(&first[..32]);
            cqe[63] |= CqeFormat::Inline32.bits();
            return Ok(());
        }
        cqe[63] |= CqeFormat::Inline64.bits();
        self.ring.write(self.index() - 1, &zerocopy::transmute!(first))
    }

    /// Where the next CQE goes, in blocks of 64 bytes.
    #[inline]
    fn index(&self) -> u64 {
        let index = if self.mode == CqMode::Collapsed { 0 } else { self.produced };
        // The second half of an entry of 128 bytes.
        (index << self.wide) + u64::from(self.wide)
    }

    #[inline(always)]
    fn write(&mut self, bytes: [u8; 64]) -> Result<(), MemError> {
        let cqe: Block = zerocopy::transmute!(bytes);
        self.ring.publish(self.index(), &cqe)?;
        self.produced += 1;
        Ok(())
    }
}

/// Indexes of CQEs have 24 bits in doorbell records and in WQEs.
const INDEX: u32 = 0xff_ffff;

/// Whether the CQE of `index` is one of the newest 2^23 of `produced`: what is further ahead than a CQ
/// is long lies behind.
#[inline]
pub(crate) fn is_reached(produced: u64, index: u32) -> bool {
    (produced as u32).wrapping_sub(index).wrapping_sub(1) & INDEX <= INDEX >> 1
}

/// CQEs consumed as a record says, of which `before` were consumed already.
fn consumed(record: &CompletionRecord, before: u64) -> u64 {
    before + u64::from(record.consumer().wrapping_sub(before as u32) & INDEX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_reached_once_its_cqe_is_there() {
        // CQEs there are, the index of the newest, and one ahead.
        for (produced, newest) in
            [(1, 0), (6, 5), (1 << 24, INDEX), ((1 << 24) + 1, 0), ((7 << 24) + 3, 2)]
        {
            let old = newest.wrapping_sub(INDEX >> 1);
            for index in [newest, newest | 0xa500_0000, newest.wrapping_sub(1), old] {
                assert!(is_reached(produced, index), "{produced} {index:#x}");
            }
            for index in [newest + 1, newest.wrapping_add(1 << 23), old.wrapping_sub(1)] {
                assert!(!is_reached(produced, index), "{produced} {index:#x}");
            }
        }
        assert!(!is_reached(0, 0));
    }
}
