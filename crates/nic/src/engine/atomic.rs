//! Atomics: on host memory by the CPU's own, elsewhere by copies there and back.
//!
//! On memory that only a copy engine reaches, the engine carries out one atomic at a time, so they
//! are atomic towards each other (as IBTA asks of atomics of one NIC), not towards kernels.

use super::copies::{CopyQueue, Source};
use crate::format::{
    MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd, Result8, result4_bytes,
};
use crate::slots::QpSlot;
use warpverbs_mem::{MemError, Region, SmallBuf, Span};

/// Lets one atomic at a time onto memory that only a copy engine reaches.
#[derive(Debug, Default)]
pub(crate) struct AtomicGate {
    /// The QP whose atomic is under way.
    owner: Option<QpSlot>,
}

impl AtomicGate {
    /// Whether no atomic is under way.
    pub(crate) fn is_free(&self) -> bool {
        self.owner.is_none()
    }

    /// An atomic of the QP in `slot` is under way.
    pub(crate) fn take(&mut self, slot: QpSlot) {
        self.owner = Some(slot);
    }

    /// No atomic of the QP in `slot` is under way any more.
    pub(crate) fn release(&mut self, slot: QpSlot) {
        self.owner.take_if(|owner| *owner == slot);
    }
}

/// The operation of an atomic on its word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amo {
    Cs4(MaskedCs<u32>),
    Cs8(MaskedCs<u64>),
    Fa4(MaskedFa<u32>),
    Fa8(MaskedFa<u64>),
}

impl From<MaskedCompareSwap> for Amo {
    fn from(operands: MaskedCompareSwap) -> Self {
        match operands {
            MaskedCompareSwap::B4(operands) => Self::Cs4(operands),
            MaskedCompareSwap::B8(operands) => Self::Cs8(operands),
        }
    }
}

impl From<MaskedFetchAdd> for Amo {
    fn from(operands: MaskedFetchAdd) -> Self {
        match operands {
            MaskedFetchAdd::B4(operands) => Self::Fa4(operands),
            MaskedFetchAdd::B8(operands) => Self::Fa8(operands),
        }
    }
}

impl Amo {
    pub(crate) fn compare_swap(compare: u64, swap: u64) -> Self {
        Self::Cs8(MaskedCs { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX })
    }

    pub(crate) fn fetch_add(add: u64) -> Self {
        Self::Fa8(MaskedFa { add, boundary: 0 })
    }

    /// The operands as a packet carries them: big-endian words.
    pub(crate) fn operands(&self) -> Vec<u8> {
        match *self {
            Self::Cs4(MaskedCs { compare, compare_mask, swap, swap_mask }) => {
                [compare, compare_mask, swap, swap_mask].map(u32::to_be_bytes).concat()
            }
            Self::Cs8(MaskedCs { compare, compare_mask, swap, swap_mask }) => {
                [compare, compare_mask, swap, swap_mask].map(u64::to_be_bytes).concat()
            }
            Self::Fa4(MaskedFa { add, boundary }) => [add, boundary].map(u32::to_be_bytes).concat(),
            Self::Fa8(MaskedFa { add, boundary }) => [add, boundary].map(u64::to_be_bytes).concat(),
        }
    }

    /// From the operands of a packet, on a word of `size` bytes; `None` if they are too few.
    pub(crate) fn from_operands(compare_swap: bool, size: u8, operands: &[u8]) -> Option<Self> {
        let word4 = |at: usize| Some(u32::from_be_bytes(*operands.as_chunks().0.get(at)?));
        let word8 = |at: usize| Some(u64::from_be_bytes(*operands.as_chunks().0.get(at)?));
        Some(match (compare_swap, size) {
            (true, 4) => {
                let (compare, compare_mask) = (word4(0)?, word4(1)?);
                let (swap, swap_mask) = (word4(2)?, word4(3)?);
                Self::Cs4(MaskedCs { compare, compare_mask, swap, swap_mask })
            }
            (true, _) => {
                let (compare, compare_mask) = (word8(0)?, word8(1)?);
                let (swap, swap_mask) = (word8(2)?, word8(3)?);
                Self::Cs8(MaskedCs { compare, compare_mask, swap, swap_mask })
            }
            (false, 4) => Self::Fa4(MaskedFa { add: word4(0)?, boundary: word4(1)? }),
            (false, _) => Self::Fa8(MaskedFa { add: word8(0)?, boundary: word8(1)? }),
        })
    }

    /// Bytes of the word, 4 or 8.
    pub(crate) fn size(&self) -> u32 {
        match self {
            Self::Cs4(_) | Self::Fa4(_) => 4,
            Self::Cs8(_) | Self::Fa8(_) => 8,
        }
    }

    /// Carries itself out on the host word at `offset`; the bytes for the requester's buffer.
    pub(crate) fn on_host(&self, region: &Region, offset: u64) -> Result<Returned, MemError> {
        let apply4 =
            |apply: &dyn Fn(u32) -> u32| region.update_u32(offset, apply).map(Returned::four);
        let apply8 =
            |apply: &dyn Fn(u64) -> u64| region.update_u64(offset, apply).map(Returned::eight);
        match *self {
            Self::Cs4(operands) => apply4(&|old| operands.apply(old)),
            Self::Fa4(operands) => apply4(&|old| operands.apply(old)),
            Self::Cs8(operands) => apply8(&|old| operands.apply(old)),
            Self::Fa8(operands) => apply8(&|old| operands.apply(old)),
        }
    }
}

/// The old value as the requester's buffer gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned {
    bytes: [u8; 8],
    len: usize,
    old: u64,
}

impl Returned {
    /// Of a word of `size` bytes.
    pub(crate) fn of(old: u64, size: u32) -> Self {
        if size == 4 { Self::four(old as u32) } else { Self::eight(old) }
    }

    fn four(old: u32) -> Self {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&result4_bytes(old));
        Self { bytes, len: 4, old: u64::from(old) }
    }

    pub(crate) fn eight(old: u64) -> Self {
        Self { bytes: Result8::default().bytes(old), len: 8, old }
    }

    /// The word's old value.
    pub(crate) fn value(&self) -> u64 {
        self.old
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn as_source(&self) -> Source<'_> {
        Source::Bytes(&self.bytes[..self.len])
    }
}

/// An atomic on memory that only a copy engine reaches: a copy of the word to the host, the
/// operation there, and copies back and to the requester.
#[derive(Debug)]
pub(crate) struct RemoteAtomic {
    amo: Amo,
    /// The word.
    target: Region,
    /// Where the old value goes, if memory of this NIC gets it.
    result: Option<Region>,
    /// A copy of the word in host memory.
    word: Region,
    /// The word's old value, once it is known.
    found: Option<u64>,
}

impl RemoteAtomic {
    /// Asks for the first copy.
    pub(crate) fn start<T: Copy>(
        amo: Amo,
        target: &Span<'_>,
        result: Option<&Span<'_>>,
        copies: &mut CopyQueue<T>,
        tag: T,
    ) -> Result<Self, MemError> {
        let result = result.map(Span::to_region).transpose()?;
        let (target, word) = (target.to_region()?, SmallBuf::region(target.len as usize));
        copies.push_or_join(&whole(&target), &whole(&word), tag, |_| false);
        Ok(Self { amo, target, result, word, found: None })
    }

    /// The word's old value, at the end.
    pub(crate) fn found(&self) -> u64 {
        self.found.unwrap_or(0)
    }

    /// All copies that it asked for have ended: does what comes next. True at the end.
    pub(crate) fn advance<T: Copy>(
        &mut self,
        copies: &mut CopyQueue<T>,
        tag: T,
    ) -> Result<bool, MemError> {
        if self.found.is_some() {
            return Ok(true);
        }
        let old = self.amo.on_host(&self.word, 0)?;
        self.found = Some(old.value());
        copies.push_or_join(&whole(&self.word), &whole(&self.target), tag, |_| false);
        if let Some(result) = &self.result {
            copies.push_all(old.as_source(), &[whole(result)], &[vec![], vec![]], tag);
        }
        Ok(false)
    }
}

/// All of a short region.
pub(crate) fn whole(region: &Region) -> Span<'_> {
    Span { region, offset: 0, len: region.len() as u32, proxy_lkey: None }
}
