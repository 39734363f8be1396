//! A bounce buffer: host memory through which blocks pass between memory of a device and another
//! process, of which the device copies one half while the CPU copies the other.

use super::direct::{self, ENGINE_FROM};
use super::{Limit, Pair};
use crate::config::CopyBy;
use crate::lock;
use crate::prepared::{Part, Piece};
use crate::{AgentError, Op};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use warpverbs_gpu::{BlockRun, BlockSide, Blocks, Buffer, Gpu, GpuKind, Launch, Place};
use warpverbs_mem::{Kind, Pending, ProcessPiece, Progress, Region, copy};

/// Bytes of a half: few enough to stay in a cache of the CPU between the two copies.
const HALF: u64 = 1 << 20;
/// Between two looks at whether another transfer has left the memory.
const NAP: Duration = Duration::from_micros(20);
/// Pieces that go through a half at a time.
const PIECES: usize = 1024;

pub(super) struct Bounce {
    /// Both halves; one transfer at a time uses them.
    memory: Mutex<Buffer>,
    gpu: Arc<dyn Gpu>,
    /// Whether kernels of the device reach it.
    by_kernel: bool,
    copy_by: CopyBy,
    kernel_blocks: Option<u32>,
    deadline: Duration,
}

/// Pieces of a list that lie one behind the other in a half.
#[derive(Default)]
struct Batch {
    /// Where each begins in the local memory.
    local: Vec<u64>,
    packed: Vec<ProcessPiece>,
    copies: Copies,
}

/// Copies by the device between the local memory and a half. Dropping them waits.
#[derive(Default)]
enum Copies {
    #[default]
    None,
    Engine(Vec<Pending>),
    Kernel(Launch),
}

/// A list, cut into batches.
struct Cut<'a> {
    pieces: &'a [Piece],
    base: u64,
    /// Of the first piece, bytes that are in earlier batches.
    done: u64,
    /// How many batches there were.
    count: usize,
}

/// One transfer.
struct Run<'a> {
    bounce: &'a Bounce,
    op: Op,
    part: &'a Part,
    memory: &'a Buffer,
    /// The local memory as kernels reach it, if they copy, and the lists of earlier posts.
    kernel: Option<(Buffer, &'a mut Vec<Blocks>)>,
}

impl Bounce {
    /// For transfers of `pair`, unless both ends of the copy are host memory.
    pub(super) fn new(pair: &Pair<'_>) -> Result<Option<Self>, AgentError> {
        let (local, config, gpu) = (pair.local.region(), &pair.agent.config, &pair.agent.gpu);
        let by_kernel = match (local.kind(), gpu.info().kind) {
            (Kind::Host, _) => config.copy_by == CopyBy::Kernel,
            (Kind::Cuda(_), GpuKind::Cuda) | (Kind::Hip(_), GpuKind::Hip) => {
                config.copy_by != CopyBy::Engine
            }
            _ => false,
        };
        let len = 2 * HALF as usize;
        let memory = match local.copier() {
            _ if by_kernel => gpu.alloc(len, Place::Shared)?,
            Some(copier) => Buffer::of_region(copier.host_memory(len)?),
            None => return Ok(None),
        };
        let (copy_by, kernel_blocks, deadline) =
            (config.copy_by, config.kernel_blocks, config.deadline);
        let (memory, gpu) = (Mutex::new(memory), gpu.clone());
        Ok(Some(Self { memory, gpu, by_kernel, copy_by, kernel_blocks, deadline }))
    }

    /// What is done here, for explanations.
    pub(super) fn explain(&self) -> &'static str {
        match self.by_kernel {
            true => "a bounce buffer; lists of small blocks by kernels, others by a copy engine",
            false => "a bounce buffer and a copy engine",
        }
    }

    /// Moves the pieces of `part`, whose memory in the other process begins at `base`. `transfer`
    /// copies between the bounce buffer and that process.
    pub(super) fn run(
        &self,
        op: Op,
        part: &Part,
        base: u64,
        limit: &Limit<'_>,
        mut transfer: impl FnMut(&Region, &[ProcessPiece]) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        let memory = self.turn(limit)?;
        let mut lists = lock(&part.lists);
        let kernel = self.kernel_view(part)?.map(|view| (view, &mut *lists));
        let mut run = Run { bounce: self, op, part, memory: &memory, kernel };
        let mut cut = Cut { pieces: &part.pieces, base, done: 0, count: 0 };
        // Behind the memory, so that the copies end before another transfer uses it.
        let mut batches = [Batch::default(), Batch::default()];
        let mut half = 0;
        // For a WRITE the device copies one batch ahead of the CPU, for a READ behind it.
        let mut more = cut.next(&mut batches[0]);
        if more && op == Op::Write {
            run.start(&mut batches[0], 0)?;
        }
        while more {
            limit.check()?;
            let (index, other) = (cut.count, 1 - half);
            if op == Op::Write {
                more = cut.next(&mut batches[other]);
                if more {
                    run.start(&mut batches[other], index)?;
                }
            }
            batches[half].copies.land(part, limit)?;
            transfer(memory.region(), &batches[half].packed)?;
            if op == Op::Read {
                run.start(&mut batches[half], index - 1)?;
                more = cut.next(&mut batches[other]);
            }
            half = other;
        }
        batches.iter_mut().try_for_each(|batch| batch.copies.land(part, limit))
    }

    /// Waits until no other transfer uses the memory.
    fn turn(&self, limit: &Limit<'_>) -> Result<MutexGuard<'_, Buffer>, AgentError> {
        loop {
            match self.memory.try_lock() {
                Ok(memory) => return Ok(memory),
                Err(TryLockError::Poisoned(memory)) => return Ok(memory.into_inner()),
                Err(TryLockError::WouldBlock) => limit.check()?,
            }
            std::thread::sleep(NAP);
        }
    }

    /// The local memory as kernels reach it, if they are to copy this list.
    fn kernel_view(&self, part: &Part) -> Result<Option<Buffer>, AgentError> {
        let small = part.pieces.len() > 1 && part.bytes < ENGINE_FROM * part.pieces.len() as u64;
        if !self.by_kernel || self.copy_by == CopyBy::Auto && !small {
            return Ok(None);
        }
        match part.local.view.get(&part.local.buffer, &*self.gpu) {
            Ok(view) => Ok(Some(view)),
            Err(_) if self.copy_by == CopyBy::Auto => Ok(None),
            Err(error) => Err(direct::failed(part, &error)),
        }
    }
}

impl Cut<'_> {
    /// Whether there are further pieces; they replace those of `batch`.
    fn next(&mut self, batch: &mut Batch) -> bool {
        let start = (self.count % 2) as u64 * HALF;
        let mut at = start;
        batch.local.clear();
        batch.packed.clear();
        while let [first, rest @ ..] = self.pieces
            && batch.packed.len() < PIECES
            && at < start + HALF
        {
            let len = (first.len - self.done).min(start + HALF - at);
            let remote = self.base + first.remote + self.done;
            batch.local.push(first.local + self.done);
            batch.packed.push(ProcessPiece { offset: at, remote, len });
            at += len;
            self.done += len;
            if self.done == first.len {
                (self.pieces, self.done) = (rest, 0);
            }
        }
        let any = !batch.packed.is_empty();
        self.count += usize::from(any);
        any
    }
}

impl Run<'_> {
    /// Starts the device's copies of batch number `index`.
    fn start(&mut self, batch: &mut Batch, index: usize) -> Result<(), AgentError> {
        let Self { bounce, op, part, memory, kernel } = self;
        let pieces = batch.local.iter().zip(&batch.packed);
        let Some((view, lists)) = kernel else {
            let mut pending = Vec::with_capacity(batch.packed.len());
            let (local, memory) = (part.local.region(), memory.region());
            for (&here, packed) in pieces {
                let len = packed.len as usize;
                let copied = match op {
                    Op::Read => copy(local, here, memory, packed.offset, len),
                    Op::Write => copy(memory, packed.offset, local, here, len),
                };
                if let Progress::Pending(copy) = copied? {
                    pending.push(copy);
                }
            }
            batch.copies = Copies::Engine(pending);
            return Ok(());
        };
        if lists.len() == index {
            let side = |buffer, offset, stride| BlockSide { buffer, offset, stride };
            let run = |(&here, packed): (&u64, &ProcessPiece)| {
                let bytes = packed.len;
                let (here, there) = (side(0, here, bytes), side(1, packed.offset, bytes));
                let (to, from) = match op {
                    Op::Read => (here, there),
                    Op::Write => (there, here),
                };
                BlockRun { to, from, bytes, count: 1 }
            };
            let runs: Vec<_> = pieces.map(run).collect();
            let blocks = Blocks::new(&*bounce.gpu, &[view.clone(), memory.clone()], &runs);
            lists.push(blocks.map_err(|error| direct::failed(part, &error))?);
        }
        let launch = lists[index].copy(&*bounce.gpu, bounce.kernel_blocks, bounce.deadline)?;
        batch.copies = Copies::Kernel(launch);
        Ok(())
    }
}

impl Copies {
    /// Waits until all of them are done.
    fn land(&mut self, part: &Part, limit: &Limit<'_>) -> Result<(), AgentError> {
        let mut spins = 0u32;
        let mut copies = take(self);
        loop {
            let done = match &mut copies {
                Copies::None => true,
                // Copies of one engine finish in order, so the last one stands for all.
                Copies::Engine(pending) => pending.last().map_or(Ok(true), Pending::is_done)?,
                Copies::Kernel(launch) => {
                    launch.is_done().map_err(|error| direct::failed(part, &error))?
                }
            };
            if done {
                return Ok(());
            }
            spins += 1;
            match spins {
                0..4096 => std::hint::spin_loop(),
                _ => {
                    limit.check()?;
                    std::thread::yield_now();
                }
            }
        }
    }
}
