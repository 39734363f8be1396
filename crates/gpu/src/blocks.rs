//! Lists of blocks that one launch copies: [`Blocks`].

use crate::kernels::blocks as kernel;
use crate::{Buffer, Dim, Gpu, GpuError, Image, KernelPtr, Launch, Place, Vec16, pieces};
use std::time::Duration;
use thiserror::Error;
use warpverbs_layout::{BlockPiece, PIECE_ADDRESS_BITS};
use zerocopy::IntoBytes;

/// Bytes of a piece, what a warp copies at a time: each lane has 8 packs of 16 bytes in flight. Pieces of
/// a long list are longer, up to [`BlockPiece::MOST`], so that the list itself stays short.
const PIECE: u64 = 32 * 8 * 16;
/// Pieces that are few enough for a list.
const MANY: u64 = 1 << 15;
/// Pieces a list may have.
const MOST_PIECES: u64 = 1 << 28;
/// Threads of a block of the launch, and how many blocks there are at most unless the caller says
/// otherwise: few enough to leave the device to others, enough to fill an NVLink. A long list has more:
/// between two H200s that gains 3 of 100.
const THREADS: u32 = 512;
const MOST_BLOCKS: u32 = 32;
const MOST_BLOCKS_LONG: u32 = 64;
const LONG: u64 = 8 << 20;

/// One side of a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSide {
    /// Index of the buffer among those of the list.
    pub buffer: u32,
    /// Where in it the first block starts, in bytes.
    pub offset: u64,
    /// Bytes from the start of a block to that of the next.
    pub stride: u64,
}

/// Blocks of equal size, at equal distances on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Where they are copied to.
    pub to: BlockSide,
    /// Where they are copied from.
    pub from: BlockSide,
    /// Size of each block in bytes.
    pub bytes: u64,
    /// How many there are.
    pub count: u64,
}

/// A list that cannot be copied.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum BlockError {
    /// A run names a buffer that the list does not have.
    #[error("run {run} names buffer {buffer}, the list has {buffers}")]
    NoBuffer { run: usize, buffer: u32, buffers: usize },
    /// A run reaches beyond its buffer.
    #[error(
        "run {run}: {count} blocks of {bytes} bytes, {stride} bytes apart, from byte {offset} on \
         do not fit into buffer {buffer} of {len} bytes"
    )]
    Outside {
        run: usize,
        count: u64,
        bytes: u64,
        stride: u64,
        offset: u64,
        buffer: u32,
        len: usize,
    },
    /// The list has more bytes or pieces than can be counted.
    #[error("run {run}: the list has more than 2^64 bytes or 2^28 pieces up to here")]
    TooLong { run: usize },
    /// A run lies at addresses that a list cannot hold.
    #[error("run {run}: its addresses have more than {} bits", PIECE_ADDRESS_BITS)]
    Address { run: usize },
    /// The device refused memory for the list.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// A checked list of blocks in the memory of one device, to be copied as often as one likes.
///
/// Blocks are copied in no particular order. Where a target overlaps another target or a source, each
/// of its bytes is one of those that the list names for it.
#[derive(Clone, Debug)]
pub struct Blocks {
    list: KernelPtr<Vec16>,
    bytes: u64,
    pieces: u64,
}

impl Blocks {
    /// The kernel that copies, for [`Gpu::load`]: loaded beforehand, no copy waits for it behind
    /// running kernels.
    pub const IMAGE: &'static Image = &kernel::IMAGE;

    /// Checks `runs` and copies them to memory of `gpu`, whose kernels reach all `buffers`: its own,
    /// those of other processes that are mapped, those of devices that it is a peer of.
    ///
    /// # Errors
    /// A run that is not inside its buffers, or the device refused memory.
    pub fn new(gpu: &dyn Gpu, buffers: &[Buffer], runs: &[BlockRun]) -> Result<Self, BlockError> {
        let mut bytes = 0u64;
        let mut checked = Vec::with_capacity(runs.len());
        for (index, run) in runs.iter().enumerate() {
            let to = run.address(index, buffers, run.to)?;
            let from = run.address(index, buffers, run.from)?;
            if run.bytes == 0 || run.count == 0 {
                continue;
            }
            let sum = run.count.checked_mul(run.bytes).and_then(|more| more.checked_add(bytes));
            bytes = sum.ok_or(BlockError::TooLong { run: index })?;
            checked.push((index, run, to, from));
        }
        let most = (bytes / MANY).next_power_of_two().clamp(PIECE, BlockPiece::MOST);
        let (mut list, mut pieces) = (Vec::new(), 0u64);
        for (index, run, to, from) in checked {
            // No less than there will be.
            let each = run.bytes.div_ceil(most) + 1;
            pieces = pieces.saturating_add(run.count.saturating_mul(each));
            if pieces > MOST_PIECES {
                return Err(BlockError::TooLong { run: index });
            }
            for block in 0..run.count {
                let (to, from) = (to + block * run.to.stride, from + block * run.from.stride);
                pieces::cut(&mut list, from, to, run.bytes, most);
            }
        }
        let pieces = list.len() as u64;
        let list = list.as_bytes();
        let buffer = gpu.alloc(list.len().max(size_of::<BlockPiece>()), Place::Device)?;
        gpu.write(&buffer, 0, list)?;
        let list = buffers.iter().fold(KernelPtr::new(&buffer), KernelPtr::reaching);
        Ok(Self { list, bytes, pieces })
    }

    /// Bytes of all blocks together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Starts copying the whole list, by one launch of `most_blocks` blocks of threads at most; by
    /// default 32, or 64 for 8 MiB and more. When the launch has ended the bytes are in place. It can be
    /// [withdrawn](Launch::withdraw).
    ///
    /// # Errors
    /// The launch was refused.
    pub fn copy(
        &self,
        gpu: &dyn Gpu,
        most_blocks: Option<u32>,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        let warps = u64::from(THREADS / 32);
        let wanted = self.pieces.div_ceil(warps).max(1);
        let usual = if self.bytes < LONG { MOST_BLOCKS } else { MOST_BLOCKS_LONG };
        let blocks = wanted.min(u64::from(most_blocks.unwrap_or(usual).max(1)));
        // As many at a time as let all warps end together.
        let share = self.pieces.div_ceil(blocks * warps).max(1);
        let each = share.div_ceil(share.div_ceil(32)) as u32;
        let (list, count) = (self.list.clone(), self.pieces);
        let stop = gpu.stops().take()?;
        let record = stop.record();
        let kernel = kernel::CopyList { list, first: 0, count, mask: u64::MAX, each, stop: record };
        let dim = Dim::new(blocks as u32, THREADS);
        // SAFETY: the list has `count` pieces, which nobody writes again. They name bytes inside of
        // buffers, as `new` has checked, and the list holds these buffers.
        let launch = unsafe { gpu.launch_unchecked(&kernel, dim, deadline) }?;
        Ok(launch.stopped_by(stop))
    }
}

impl BlockRun {
    /// Where kernels reach the first block of one side, if all blocks lie in their buffer.
    fn address(&self, run: usize, buffers: &[Buffer], side: BlockSide) -> Result<u64, BlockError> {
        let BlockSide { buffer, offset, stride } = side;
        let Some(found) = buffers.get(buffer as usize) else {
            return Err(BlockError::NoBuffer { run, buffer, buffers: buffers.len() });
        };
        let len = found.len();
        let end = || {
            let last = self.count.saturating_sub(1).checked_mul(stride)?.checked_add(offset)?;
            last.checked_add(if self.count == 0 { 0 } else { self.bytes })
        };
        if end().is_some_and(|end| end <= len as u64) {
            return match BlockPiece::reaches(found.kernel_addr(), len as u64) {
                true => Ok(found.kernel_addr() + offset),
                false => Err(BlockError::Address { run }),
            };
        }
        let (count, bytes) = (self.count, self.bytes);
        Err(BlockError::Outside { run, count, bytes, stride, offset, buffer, len })
    }
}
