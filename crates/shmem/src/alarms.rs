//! Words by which the host ends waits of kernels, shared with the thread that watches the world.

use crate::ShmemError;
use crate::layout::ALARM_OF_HEAP;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_gpu::{Buffer, Gpu, KernelPtr, Place};
use warpverbs_rendezvous::News;
use zerocopy::IntoBytes;

/// One word for all waits, and one for those for each rank.
pub(crate) struct Alarms {
    gpu: Arc<dyn Gpu>,
    words: Buffer,
    aborted: AtomicBool,
    lost: Vec<AtomicBool>,
}

impl Alarms {
    pub(crate) fn new(gpu: &Arc<dyn Gpu>, world: u32) -> Result<Self, ShmemError> {
        let words = gpu.alloc(4 * (1 + world as usize), Place::Shared)?;
        let lost = (0..world).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { gpu: gpu.clone(), words, aborted: AtomicBool::new(false), lost })
    }

    /// For kernels.
    pub(crate) fn pointer(&self) -> KernelPtr<u32> {
        KernelPtr::new(&self.words)
    }

    fn set(&self, alarm: usize, on: bool) -> Result<(), ShmemError> {
        Ok(self.gpu.write(&self.words, 4 * alarm as u64, u32::from(on).as_bytes())?)
    }

    /// Ends all waits, or lets them be again.
    pub(crate) fn abort(&self, on: bool) -> Result<(), ShmemError> {
        self.aborted.store(on, Ordering::Release);
        self.set(ALARM_OF_HEAP, on)
    }

    /// Ends the waits for a rank, or lets them be again.
    pub(crate) fn lose(&self, rank: u32, on: bool) -> Result<(), ShmemError> {
        let world = self.lost.len() as u32;
        let lost = self.lost.get(rank as usize).ok_or(ShmemError::Rank { rank, world })?;
        lost.store(on, Ordering::Release);
        self.set(ALARM_OF_HEAP + 1 + rank as usize, on)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    pub(crate) fn is_lost(&self, rank: u32) -> bool {
        self.lost.get(rank as usize).is_some_and(|lost| lost.load(Ordering::Acquire))
    }

    /// Raises the alarm of an event.
    pub(crate) fn hear(&self, news: News) {
        let heard = match news {
            News::Lost(rank, _) => self.lose(rank, true),
            // Of those that have left this view nothing more will come.
            _ => self.abort(true),
        };
        if let Err(error) = heard {
            tracing::warn!(%error, "an alarm of the heap");
        }
    }
}
