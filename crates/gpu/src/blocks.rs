//! Lists of blocks that one launch copies: [`Blocks`].

use crate::kernels::blocks as kernel;
use crate::{BlockList, Buffer, Dim, Gpu, GpuError, Image, KernelPtr, Launch, Place};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Bytes of a piece, what a warp copies at a time: each lane has 8 packs of 16 bytes in flight.
const LOG_PIECE: u32 = 12;
const _: () = assert!(1 << LOG_PIECE == 32 * 8 * 16);
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
pub enum BlockError {
    /// A run names a buffer that the list does not have.
    #[error("run {run} names buffer {buffer}, the list has {buffers}")]
    NoBuffer {
        /// Index of the run.
        run: usize,
        /// Index that it names.
        buffer: u32,
        /// Number of buffers.
        buffers: usize,
    },
    /// A run reaches beyond its buffer.
    #[error(
        "run {run}: {count} blocks of {bytes} bytes, {stride} bytes apart, from byte {offset} on \
         do not fit into buffer {buffer} of {len} bytes"
    )]
    Outside {
        /// Index of the run.
        run: usize,
        /// Blocks of the run.
        count: u64,
        /// Size of each.
        bytes: u64,
        /// Distance of their starts.
        stride: u64,
        /// Where the first one starts.
        offset: u64,
        /// The buffer.
        buffer: u32,
        /// Its size in bytes.
        len: usize,
    },
    /// The list has more bytes than can be counted.
    #[error("run {run}: the list has more than 2^64 bytes up to here")]
    TooLong {
        /// Index of the run.
        run: usize,
    },
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
    list: KernelPtr<BlockList>,
    bytes: u64,
    pieces: u64,
}

/// `wv::BlockRun` and `wv::BlockList` of `kernels/include/warpverbs/blocks.h`, as words.
const RUN_WORDS: usize = 6;
const LIST_WORDS: usize = 4;

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
        let mut words = Vec::with_capacity(LIST_WORDS + RUN_WORDS * runs.len());
        words.resize(LIST_WORDS, 0u64);
        let (mut bytes, mut pieces, mut count) = (0u64, 0u64, 0u64);
        for (index, run) in runs.iter().enumerate() {
            let to = run.address(index, buffers, run.to)?;
            let from = run.address(index, buffers, run.from)?;
            if run.bytes == 0 || run.count == 0 {
                continue;
            }
            words.extend([to, from, run.to.stride, run.from.stride, run.bytes, pieces]);
            count += 1;
            let sum = |more: u64, to: u64| run.count.checked_mul(more)?.checked_add(to);
            let too_long = BlockError::TooLong { run: index };
            bytes = sum(run.bytes, bytes).ok_or(too_long)?;
            // No more than there are bytes.
            pieces += run.count * (((run.bytes - 1) >> LOG_PIECE) + 1);
        }
        let buffer = gpu.alloc(8 * words.len(), Place::Device)?;
        let first = buffer.kernel_addr() + 8 * LIST_WORDS as u64;
        words[..LIST_WORDS].copy_from_slice(&[first, count, pieces, u64::from(LOG_PIECE)]);
        let table: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        gpu.write(&buffer, 0, &table)?;
        // SAFETY: the buffer holds a `wv::BlockList` and its runs, which nobody writes again; their
        // addresses lie in `buffers`, which are named below.
        let list = unsafe { KernelPtr::from_buffer(&buffer, Arc::new(())) };
        let list = buffers.iter().fold(list, KernelPtr::reaching);
        Ok(Self { list, bytes, pieces })
    }

    /// Bytes of all blocks together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Starts copying the whole list, by one launch of `most_blocks` blocks of threads at most; by
    /// default 32, or 64 for 8 MiB and more. When the launch has ended the bytes are in place.
    ///
    /// # Errors
    /// The launch was refused.
    pub fn copy(
        &self,
        gpu: &dyn Gpu,
        most_blocks: Option<u32>,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        let wanted = self.pieces.div_ceil(u64::from(THREADS / 32)).max(1);
        let usual = if self.bytes < LONG { MOST_BLOCKS } else { MOST_BLOCKS_LONG };
        let blocks = wanted.min(u64::from(most_blocks.unwrap_or(usual).max(1)));
        let kernel = kernel::CopyList { list: self.list.clone() };
        gpu.launch(&kernel, Dim::new(blocks as u32, THREADS), deadline)
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
            return Ok(found.kernel_addr() + offset);
        }
        let (count, bytes) = (self.count, self.bytes);
        Err(BlockError::Outside { run, count, bytes, stride, offset, buffer, len })
    }
}
