//! A bounce buffer: host memory through which blocks pass between memory of a device and another
//! process, of which the device copies one half while the CPU copies the other.

use super::copying::{Copying, KernelCopy};
use super::{Cursor, Job, Limit};
use crate::memory::Held;
use crate::names::Op;
use crate::plan::Piece;
use crate::{AgentError, CopyBy, lock, try_lock};
use rustc_hash::FxHashMap;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use warpverbs_gpu::{Blocks, Buffer, GpuKind, Place};
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
    /// Whether kernels of the device reach it.
    by_kernel: bool,
    copying: Copying,
}

/// The bounce buffers of paths to one peer: one for each kind of memory here, however much memory of the
/// peer is reached by it.
#[derive(Default)]
pub(crate) struct Bounces(Mutex<FxHashMap<Kind, Weak<Bounce>>>);

impl Bounces {
    /// For transfers of this memory, unless both ends of the copy are host memory.
    pub(super) fn get(
        &self,
        copying: &Copying,
        local: &Region,
    ) -> Result<Option<Arc<Bounce>>, AgentError> {
        let kind = local.kind();
        let known = || lock(&self.0).get(&kind).and_then(Weak::upgrade);
        if let Some(known) = known() {
            return Ok(Some(known));
        }
        // Without the lock. Of two threads that make one, each may use its own.
        let made = Bounce::new(copying, local)?.map(Arc::new);
        if let Some(made) = &made {
            lock(&self.0).insert(kind, Arc::downgrade(made));
        }
        Ok(made)
    }
}

/// Pieces of a list that lie one behind the other in a half.
#[derive(Default)]
struct Batch {
    /// Where each begins in the local memory.
    local: Vec<u64>,
    packed: Vec<ProcessPiece>,
    copies: Copies,
    /// Bytes that these bring to the local memory.
    landing: u64,
}

/// Copies by the device between the local memory and a half. Dropping them waits until none lands any more.
#[derive(Default)]
enum Copies {
    #[default]
    None,
    Engine(Vec<Pending>),
    Kernel(Box<KernelCopy>),
}

/// A list, cut into batches.
struct Cut<'a> {
    pieces: &'a [Piece],
    base: u64,
    cursor: Cursor,
    /// How many batches there were.
    count: usize,
}

/// One transfer.
struct Run<'a> {
    bounce: &'a Bounce,
    job: &'a Job,
    local: &'a Region,
    memory: &'a Buffer,
    /// The local memory as kernels reach it, if they copy, and the lists of earlier posts.
    kernel: Option<(Buffer, &'a mut Vec<Blocks>)>,
}

impl Bounce {
    fn new(copying: &Copying, local: &Region) -> Result<Option<Self>, AgentError> {
        let Copying { gpu, copy_by, .. } = copying;
        let by_kernel = match (local.kind(), gpu.info().kind) {
            (Kind::Host, _) => *copy_by == CopyBy::Kernel,
            (Kind::Cuda(_), GpuKind::Cuda) | (Kind::Hip(_), GpuKind::Hip) => {
                *copy_by != CopyBy::Engine
            }
            _ => false,
        };
        let len = 2 * HALF as usize;
        let memory = match local.copier() {
            _ if by_kernel => gpu.alloc(len, Place::Shared)?,
            Some(copier) => Buffer::of_region(copier.host_memory(len)?),
            None => return Ok(None),
        };
        Ok(Some(Self { memory: Mutex::new(memory), by_kernel, copying: copying.clone() }))
    }

    /// The way of copying, for explanations.
    pub(super) fn explain(&self) -> &'static str {
        match self.by_kernel {
            true => "a bounce buffer; lists of small blocks by kernels, others by a copy engine",
            false => "a bounce buffer and a copy engine",
        }
    }

    /// Moves the pieces of `job`, whose memory in the other process begins at `base`. `transfer`
    /// copies between the bounce buffer and that process.
    pub(super) fn run(
        &self,
        (job, held): (&Job, &Held),
        base: u64,
        limit: &Limit<'_>,
        mut transfer: impl FnMut(&Region, &[ProcessPiece]) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        let memory = self.turn(limit)?;
        let mut lists = lock(&job.lists);
        if lists.is_empty() {
            job.local.ends(&job.lists);
        }
        let kernel = self.kernel_view(job, held)?.map(|view| (view, &mut *lists));
        let local = held.region();
        let mut run = Run { bounce: self, job, local, memory: &memory, kernel };
        let mut cut = Cut { pieces: &job.pieces, base, cursor: Cursor::default(), count: 0 };
        // Behind the memory, so that the copies end before another transfer uses it.
        let mut batches = [Batch::default(), Batch::default()];
        let mut half = 0;
        // For a WRITE the device copies one batch ahead of the CPU, for a READ behind it.
        let mut more = cut.next(&mut batches[0]);
        if more && job.op == Op::Write {
            run.start(&mut batches[0], 0, limit)?;
        }
        while more {
            limit.check()?;
            let (index, other) = (cut.count, 1 - half);
            if job.op == Op::Write {
                more = cut.next(&mut batches[other]);
                if more {
                    run.start(&mut batches[other], index, limit)?;
                }
            }
            batches[half].land(job, limit)?;
            transfer(memory.region(), &batches[half].packed)?;
            let bytes = batches[half].packed.iter().map(|piece| piece.len).sum();
            match job.op {
                Op::Write => job.advance(bytes),
                Op::Read => {
                    run.start(&mut batches[half], index - 1, limit)?;
                    batches[half].landing = bytes;
                    more = cut.next(&mut batches[other]);
                }
            }
            half = other;
        }
        batches.iter_mut().try_for_each(|batch| batch.land(job, limit))
    }

    /// Waits until no other transfer uses the memory.
    fn turn(&self, limit: &Limit<'_>) -> Result<MutexGuard<'_, Buffer>, AgentError> {
        loop {
            if let Some(memory) = try_lock(&self.memory) {
                return Ok(memory);
            }
            limit.check()?;
            std::thread::sleep(NAP);
        }
    }

    /// The local memory as kernels reach it, if they are to copy this list.
    fn kernel_view(&self, job: &Job, held: &Held) -> Result<Option<Buffer>, AgentError> {
        let auto = self.copying.copy_by == CopyBy::Auto;
        if !self.by_kernel || auto && !(job.pieces.len() > 1 && Copying::are_small(job)) {
            return Ok(None);
        }
        match held.view.get(&held.buffer, &*self.copying.gpu) {
            Ok(view) => Ok(Some(view)),
            Err(_) if auto => Ok(None),
            Err(error) => Err(job.failed(&error)),
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
        while batch.packed.len() < PIECES
            && at < start + HALF
            && let Some(next) = self.cursor.take(self.pieces, start + HALF - at)
        {
            let (remote, len) = (self.base + next.remote, next.len);
            batch.local.push(next.local);
            batch.packed.push(ProcessPiece { offset: at, remote, len });
            at += len;
        }
        let any = !batch.packed.is_empty();
        self.count += usize::from(any);
        any
    }
}

impl Run<'_> {
    /// Starts the device's copies of batch number `index`.
    fn start(
        &mut self,
        batch: &mut Batch,
        index: usize,
        limit: &Limit<'_>,
    ) -> Result<(), AgentError> {
        let Self { bounce, job, local, memory, kernel } = self;
        let pieces = batch.local.iter().zip(&batch.packed);
        let Some((view, lists)) = kernel else {
            let mut pending = Vec::with_capacity(batch.packed.len());
            let memory = memory.region();
            for (&here, packed) in pieces {
                let len = packed.len as usize;
                let copied = match job.op {
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
            let piece = |(&local, packed): (&u64, &ProcessPiece)| Piece {
                local,
                remote: packed.offset,
                len: packed.len,
            };
            let buffers = [view.clone(), memory.clone()];
            lists.push(bounce.copying.list(job, &buffers, pieces.map(piece))?);
        }
        batch.copies = Copies::Kernel(Box::new(bounce.copying.launch(&lists[index], limit)?));
        Ok(())
    }
}

impl Batch {
    /// Waits until the device's copies are done.
    fn land(&mut self, job: &Job, limit: &Limit<'_>) -> Result<(), AgentError> {
        self.copies.land(job, limit)?;
        job.advance(take(&mut self.landing));
        Ok(())
    }
}

impl Copies {
    /// Waits until all of them are done.
    fn land(&mut self, job: &Job, limit: &Limit<'_>) -> Result<(), AgentError> {
        let mut spins = 0u32;
        let mut copies = take(self);
        loop {
            let done = match &mut copies {
                Copies::None => true,
                // Copies of one engine finish in order, so the last one stands for all.
                Copies::Engine(pending) => pending.last().map_or(Ok(true), Pending::is_done)?,
                Copies::Kernel(copy) => copy.is_done().map_err(|error| job.failed(&error))?,
            };
            if done {
                return Ok(());
            }
            spins += 1;
            match spins {
                0..4096 => std::hint::spin_loop(),
                _ => {
                    limit.check()?;
                    warpverbs_mem::pause();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AgentConfig;
    use warpverbs_gpu::{Gpu, GpuChoice};
    use warpverbs_mem::HostBuf;
    use warpverbs_mem::testing::{LazyCopier, LazyMemory};

    #[test]
    fn memories_of_a_peer_share_a_buffer_as_long_as_one_uses_it() {
        let gpu: Arc<dyn Gpu> = warpverbs_gpu::open(GpuChoice::Simt).unwrap();
        let copying = Copying::new(&gpu, &AgentConfig::default());
        let engine = Arc::new(LazyCopier::default());
        let memory = || LazyMemory::regions(64, 0, &engine).unwrap().0;
        let (bounces, locals) = (Bounces::default(), [memory(), memory()]);
        let get = |local| bounces.get(&copying, local).unwrap();
        let all: Vec<_> = locals.iter().cycle().take(8).map(|local| get(local).unwrap()).collect();
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
        let on_host = HostBuf::region(64).unwrap();
        assert!(bounces.get(&copying, &on_host).unwrap().is_none());
        let only = Arc::downgrade(&all[0]);
        drop(all);
        assert_eq!(only.strong_count(), 0);
        assert!(get(&locals[1]).is_some());
    }
}
