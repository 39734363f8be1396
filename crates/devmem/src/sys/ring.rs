//! Descriptors for the kernel that unpacks, in a ring that host and device share. Nobody else can
//! write the ring, so a launch touches what has been checked here and nothing else.

use super::kernels::unpack;
use crate::unpack::{Shape, UnpackError};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Buffer, Gpu, Image, KernelPtr, Launch, Place};

/// The kernel, to be loaded before others run.
pub const UNPACK_IMAGE: &Image = &unpack::IMAGE;

/// Descriptors that a warp takes at a time at most: what its lanes load at once.
pub(crate) const MOST_EACH: u32 = 32;

/// Bytes of a descriptor, and how many are in 128 bytes: batches begin where such a line does.
const DESCRIPTOR: u64 = 16;
const LINE: u64 = 128 / DESCRIPTOR;
/// A long move is cut where the address to write is a multiple of this, so that many warps share it.
/// At most 64 KiB, which is the longest length that a descriptor holds.
const PIECE: u64 = 16 << 10;
const ADDRESS_BITS: u32 = 56;

/// A move between two buffers.
#[derive(Clone, Copy)]
pub(crate) struct Resolved<'a> {
    pub(crate) from: &'a Buffer,
    pub(crate) from_offset: u64,
    pub(crate) to: &'a Buffer,
    pub(crate) to_offset: u64,
    pub(crate) len: u64,
}

impl Resolved<'_> {
    /// Where a kernel reads and writes, if all bytes are inside the buffers.
    fn addresses(&self) -> Result<(u64, u64), UnpackError> {
        let at = |buffer: &Buffer, offset: u64| {
            // No buffer is longer than the address space.
            let len = usize::try_from(self.len).unwrap_or(usize::MAX);
            buffer.region().range(offset, len)?;
            let addr = buffer.kernel_addr() + offset;
            let fits = addr.checked_add(self.len).is_some_and(|end| end >> ADDRESS_BITS == 0);
            if fits { Ok(addr) } else { Err(UnpackError::Address { addr, bits: ADDRESS_BITS }) }
        };
        Ok((at(self.from, self.from_offset)?, at(self.to, self.to_offset)?))
    }
}

/// Descriptors in mapped host memory.
pub(crate) struct Ring {
    gpu: Arc<dyn Gpu>,
    memory: Buffer,
    entries: u64,
    /// Descriptors written, and of those the ones that kernels no longer read; with gaps that align
    /// batches.
    head: u64,
    tail: u64,
}

/// A launch, and where the ring is free again when it has ended.
pub(crate) struct Started {
    pub(crate) launch: Launch,
    pub(crate) end: u64,
}

impl Ring {
    /// Of `entries` descriptors, rounded up to a power of two. Loads the kernel.
    pub(crate) fn new(gpu: Arc<dyn Gpu>, entries: u32) -> Result<Self, UnpackError> {
        let entries = u64::from(entries).next_power_of_two().max(2 * LINE);
        let memory = gpu.alloc((entries * DESCRIPTOR) as usize, Place::Shared)?;
        gpu.load(UNPACK_IMAGE)?;
        Ok(Self { gpu, memory, entries, head: 0, tail: 0 })
    }

    /// Kernels no longer read what is before `end`.
    pub(crate) fn free(&mut self, end: u64) {
        self.tail = end;
    }

    /// Starts one kernel for all `moves`.
    pub(crate) fn launch(
        &mut self,
        moves: &[Resolved<'_>],
        shape: Shape,
        deadline: Duration,
    ) -> Result<Started, UnpackError> {
        let first = self.head.next_multiple_of(LINE);
        let (descriptors, reached) = self.describe(moves, first)?;
        let count = descriptors.len() as u64 / DESCRIPTOR;
        let end = first + count;
        self.write(&descriptors, first)?;
        let ring =
            reached.iter().fold(KernelPtr::new(&self.memory), |ring, area| ring.reaching(area));
        let info = self.gpu.info();
        let (each, dim) = shape.launch(count, info.sm_count, info.warp_size);
        let kernel = unpack::Unpack { ring, first, count, mask: self.entries - 1, each };
        // SAFETY: the kernel reads descriptors `first` to `end - 1`, modulo the length of the ring,
        // which `write` has just written. They name bytes inside of the buffers in `reached`, as
        // `addresses` has checked, and the launch holds these buffers. The ring's memory is this
        // value's alone, and `describe` saw that no other launch is reading these descriptors.
        let launch = unsafe { self.gpu.launch_unchecked(&kernel, dim, deadline) }?;
        self.head = end;
        Ok(Started { launch, end })
    }

    /// The bytes of the descriptors, if there is room for them from `first` on, and the buffers that
    /// they reach.
    fn describe<'a>(
        &self,
        moves: &[Resolved<'a>],
        first: u64,
    ) -> Result<(Vec<u8>, Vec<&'a Buffer>), UnpackError> {
        let (mut count, mut reached) = (0u64, Vec::<&Buffer>::new());
        let mut descriptors = Vec::with_capacity(moves.len() * DESCRIPTOR as usize);
        for next in moves {
            let (mut from, mut to) = next.addresses()?;
            count = count.saturating_add((to % PIECE + next.len).div_ceil(PIECE));
            if count > self.entries {
                // Only counted: the error says how many there are.
                continue;
            }
            let end = to + next.len;
            while to < end {
                let len = (PIECE - to % PIECE).min(end - to);
                let [low, high, ..] = (len - 1).to_le_bytes().map(u64::from);
                descriptors.extend_from_slice(&(from | low << ADDRESS_BITS).to_ne_bytes());
                descriptors.extend_from_slice(&(to | high << ADDRESS_BITS).to_ne_bytes());
                from += len;
                to += len;
            }
            for buffer in [next.from, next.to] {
                if !reached.iter().any(|known| std::ptr::eq(*known, buffer)) {
                    reached.push(buffer);
                }
            }
        }
        if count > self.entries {
            return Err(UnpackError::TooLarge { descriptors: count, entries: self.entries });
        }
        if first + count - self.tail > self.entries {
            return Err(UnpackError::Full);
        }
        Ok((descriptors, reached))
    }

    /// Writes descriptors from `first` on, in two parts where they pass the end of the ring.
    fn write(&self, descriptors: &[u8], first: u64) -> Result<(), UnpackError> {
        let at = first % self.entries;
        let until_end = ((self.entries - at) * DESCRIPTOR) as usize;
        let (here, around) = descriptors.split_at(until_end.min(descriptors.len()));
        self.memory.region().write(at * DESCRIPTOR, here)?;
        Ok(self.memory.region().write(0, around)?)
    }
}
