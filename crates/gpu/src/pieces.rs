//! Lists of pieces, which one kernel copies; [`CopyRing`] for lists that are copied once.

use crate::kernels::blocks as kernel;
use crate::{Buffer, Dim, Gpu, GpuError, KernelPtr, Launch, LaunchError, Place, Vec16};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use warpverbs_layout::{BlockPiece, PIECE_ADDRESS_BITS};
use warpverbs_mem::MemError;
use zerocopy::IntoBytes;

/// Bytes of a piece in a list, and how many are in 128 bytes: batches begin where such a line does.
const PIECE: u64 = size_of::<BlockPiece>() as u64;
const LINE: u64 = 128 / PIECE;
/// A long range is cut where its target is a multiple of this.
const ALIGN: u64 = 128;
/// The longest piece of a list that is copied once: many warps share a long range.
const MOST: u64 = 16 << 10;

/// The length of the first piece of a range, if pieces are at most `most` bytes long.
fn first_piece(to: u64, len: u64, most: u64) -> u64 {
    if len <= most { len } else { most - to % ALIGN }
}

/// How many pieces a range becomes.
pub(crate) fn count(to: u64, len: u64, most: u64) -> u64 {
    match len {
        0 => 0,
        _ => 1 + (len - first_piece(to, len, most)).div_ceil(most),
    }
}

/// Appends the pieces of a range.
pub(crate) fn cut(list: &mut Vec<BlockPiece>, from: u64, to: u64, len: u64, most: u64) {
    let mut piece = first_piece(to, len, most);
    let mut done = 0;
    while done < len {
        list.push(BlockPiece::new(from + done, to + done, piece));
        done += piece;
        piece = most.min(len - done);
    }
}

/// Bytes to copy from one buffer to another.
#[derive(Clone, Copy, Debug)]
pub struct RangeCopy<'a> {
    /// Where they are.
    pub from: &'a Buffer,
    /// The first one's place there.
    pub from_offset: u64,
    /// Where they go.
    pub to: &'a Buffer,
    /// The first one's place there.
    pub to_offset: u64,
    /// How many.
    pub len: u64,
}

impl RangeCopy<'_> {
    /// Where a kernel reads and writes, if all bytes are inside the buffers.
    fn addresses(&self) -> Result<(u64, u64), CopyError> {
        let at = |buffer: &Buffer, offset: u64| {
            // No buffer is longer than the address space.
            let len = usize::try_from(self.len).unwrap_or(usize::MAX);
            buffer.region().range(offset, len)?;
            let addr = buffer.kernel_addr() + offset;
            match BlockPiece::reaches(addr, self.len) {
                true => Ok(addr),
                false => Err(CopyError::Address { addr, bits: PIECE_ADDRESS_BITS }),
            }
        };
        Ok((at(self.from, self.from_offset)?, at(self.to, self.to_offset)?))
    }
}

/// A list that was not copied.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum CopyError {
    /// The ring is full of pieces that kernels still read: poll, then try again.
    #[error("the ring of pieces is full")]
    Full,
    /// A list that the ring can never hold.
    #[error("the list has {pieces} pieces, the ring holds {entries}")]
    TooLarge { pieces: u64, entries: u64 },
    /// An address that a piece cannot hold.
    #[error("address {addr:#x} has more than {bits} bits")]
    Address { addr: u64, bits: u32 },
    /// A range that is not inside its buffers.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The device refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// Pieces in mapped host memory, so that nothing is copied to the device before a launch. Nobody else
/// can write them, so a launch touches what was checked here and nothing else.
pub struct CopyRing {
    gpu: Arc<dyn Gpu>,
    memory: Buffer,
    entries: u64,
    /// Pieces written, and of those the ones that kernels no longer read; with gaps that align lists.
    head: u64,
    tail: u64,
    /// Launches that have not ended, oldest first, each with the head behind it.
    running: VecDeque<(Launch, u64)>,
    started: u64,
}

impl CopyRing {
    /// Of `entries` pieces, rounded up to a power of two. Loads the kernel.
    ///
    /// # Errors
    /// The device refused memory or the kernel.
    pub fn new(gpu: Arc<dyn Gpu>, entries: u32) -> Result<Self, GpuError> {
        let entries = u64::from(entries).next_power_of_two().max(2 * LINE);
        let memory = gpu.alloc((entries * PIECE) as usize, Place::Shared)?;
        gpu.load(&kernel::IMAGE)?;
        let (running, started) = (VecDeque::new(), 0);
        Ok(Self { gpu, memory, entries, head: 0, tail: 0, running, started })
    }

    /// Starts one kernel that copies all `ranges`, in no particular order. `shape` says for a number of
    /// pieces how many a warp takes at a time, at most 32, and the dimensions of the launch. Returns the
    /// number of this copy, for [`CopyRing::is_done`]: 1, 2 and so on.
    ///
    /// # Errors
    /// Nothing was started: a range is not inside its buffers, there is no room, or the device refused.
    pub fn copy(
        &mut self,
        ranges: &[RangeCopy<'_>],
        shape: impl FnOnce(u64) -> (u32, Dim),
        deadline: Duration,
    ) -> Result<u64, CopyError> {
        let first = self.head.next_multiple_of(LINE);
        let (list, reached) = self.describe(ranges, first)?;
        let count = list.len() as u64;
        self.write(list.as_bytes(), first)?;
        let ring: KernelPtr<Vec16> = KernelPtr::new(&self.memory);
        let list = reached.iter().fold(ring, |list, buffer| list.reaching(buffer));
        let (each, dim) = shape(count);
        let stop = self.gpu.stops().take()?;
        let (mask, record) = (self.entries - 1, stop.record());
        let kernel = kernel::CopyList { list, first, count, mask, each, stop: record };
        // SAFETY: the kernel reads pieces `first` to `first + count - 1`, modulo the length of the ring,
        // which `write` has just written. They name bytes inside of the buffers in `reached`, as
        // `addresses` has checked, and the launch holds these buffers. The ring's memory is this
        // value's alone, and `describe` saw that no other launch is reading these pieces.
        let launch = unsafe { self.gpu.launch_unchecked(&kernel, dim, deadline) }?;
        self.head = first + count;
        self.running.push_back((launch.stopped_by(stop), self.head));
        self.started += 1;
        Ok(self.started)
    }

    /// Whether a copy has ended, and all before it.
    ///
    /// # Errors
    /// A kernel failed, this one or an earlier one. Its pieces stay in the ring.
    pub fn is_done(&mut self, copy: u64) -> Result<bool, LaunchError> {
        while let Some((launch, end)) = self.running.front_mut() {
            if !launch.is_done()? {
                break;
            }
            self.tail = *end;
            self.running.pop_front();
        }
        Ok(copy + self.running.len() as u64 <= self.started)
    }

    /// The pieces, if there is room for them from `first` on, and the buffers that they reach.
    fn describe<'a>(
        &self,
        ranges: &[RangeCopy<'a>],
        first: u64,
    ) -> Result<(Vec<BlockPiece>, Vec<&'a Buffer>), CopyError> {
        let (mut pieces, mut reached) = (0u64, Vec::<&Buffer>::new());
        let mut list = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (from, to) = range.addresses()?;
            pieces = pieces.saturating_add(count(to, range.len, MOST));
            if pieces > self.entries {
                // Only counted: the error says how many there are.
                continue;
            }
            cut(&mut list, from, to, range.len, MOST);
            for buffer in [range.from, range.to] {
                if !reached.iter().any(|known| std::ptr::eq(*known, buffer)) {
                    reached.push(buffer);
                }
            }
        }
        if pieces > self.entries {
            return Err(CopyError::TooLarge { pieces, entries: self.entries });
        }
        if first + pieces - self.tail > self.entries {
            return Err(CopyError::Full);
        }
        Ok((list, reached))
    }

    /// Writes pieces from `first` on, in two parts where they pass the end of the ring.
    fn write(&self, pieces: &[u8], first: u64) -> Result<(), CopyError> {
        let at = first % self.entries;
        let until_end = ((self.entries - at) * PIECE) as usize;
        let (here, around) = pieces.split_at(until_end.min(pieces.len()));
        self.memory.region().write(at * PIECE, here)?;
        Ok(self.memory.region().write(0, around)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_their_range_and_are_as_many_as_was_said() {
        for (to, len, most) in [
            (0, 1, 4096),
            (5, 4096, 4096),
            (5, 4097, 4096),
            (127, 65_536, 4096),
            (128, 1 << 20, 1 << 16),
            (77, (1 << 20) + 1, 1 << 16),
            (0, 0, 4096),
        ] {
            let mut list = Vec::new();
            cut(&mut list, 1 << 40, to, len, most);
            assert_eq!(list.len() as u64, count(to, len, most));
            let mut at = to;
            for piece in &list {
                let address = |word: u64| word & ((1 << PIECE_ADDRESS_BITS) - 1);
                let bytes = |word: u64| word >> PIECE_ADDRESS_BITS;
                assert_eq!(address(piece.to), at);
                assert_eq!(address(piece.from), (1 << 40) + at - to);
                at += (bytes(piece.from) | bytes(piece.to) << 8) + 1;
                assert!(at == to + len || at.is_multiple_of(ALIGN));
            }
            assert_eq!(at, to + len);
        }
    }
}
