//! The choice of who copies on this machine, and lists that kernels copy.

use super::{Job, Limit};
use crate::names::Op;
use crate::plan::Piece;
use crate::{AgentConfig, AgentError, CopyBy};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_gpu::{BlockRun, BlockSide, Blocks, Buffer, Gpu, GpuError, Launch, LaunchError};

/// Between host memory and that of a GPU a copy engine moves pieces of at least this many bytes, on
/// average, faster than a kernel: it has fewer and larger requests on the bus.
const ENGINE_FROM: u64 = 256 << 10;
/// Withdrawing a launch takes two small copies and the end of what its blocks are at: this long means
/// that the device hangs.
const HANGS: Duration = Duration::from_secs(10);
/// Between two looks at whether the device has run launches that were withdrawn: of each the driver is asked.
const CROWDED: Duration = Duration::from_millis(1);
/// Between two looks at a launch that is withdrawn.
const NAP: Duration = Duration::from_micros(20);

/// The configuration of copies.
#[derive(Clone)]
pub(crate) struct Copying {
    pub(super) gpu: Arc<dyn Gpu>,
    pub(super) copy_by: CopyBy,
    kernel_blocks: Option<u32>,
}

impl Copying {
    pub(crate) fn new(gpu: &Arc<dyn Gpu>, config: &AgentConfig) -> Self {
        let AgentConfig { copy_by, kernel_blocks, .. } = *config;
        Self { gpu: gpu.clone(), copy_by, kernel_blocks }
    }

    /// Whether pieces are so small that a kernel copies them to or from host memory sooner.
    pub(super) fn are_small(job: &Job) -> bool {
        job.bytes < ENGINE_FROM * job.pieces.len() as u64
    }

    /// Pieces between the first buffer, which is the local side, and the second, as kernels take them.
    pub(super) fn list(
        &self,
        job: &Job,
        buffers: &[Buffer; 2],
        pieces: impl Iterator<Item = Piece>,
    ) -> Result<Blocks, AgentError> {
        let run = |piece: Piece| {
            let side = |buffer, offset| BlockSide { buffer, offset, stride: piece.len };
            let (here, there) = (side(0, piece.local), side(1, piece.remote));
            let (to, from) = match job.op {
                Op::Read => (here, there),
                Op::Write => (there, here),
            };
            BlockRun { to, from, bytes: piece.len, count: 1 }
        };
        let runs: Vec<_> = pieces.map(run).collect();
        Blocks::new(&*self.gpu, buffers, &runs).map_err(|error| job.failed(&error))
    }

    /// Begins to copy a list, unless there is no time left. While the device has as many launches that
    /// were withdrawn as it may, this waits: otherwise each transfer that ends early would leave one more.
    pub(super) fn launch(
        &self,
        list: &Blocks,
        limit: &Limit<'_>,
    ) -> Result<KernelCopy, AgentError> {
        loop {
            limit.check()?;
            let left = limit.deadline.0.remaining().unwrap_or_default();
            match list.copy(&*self.gpu, self.kernel_blocks, left) {
                Err(GpuError::Withdrawn { .. }) => std::thread::sleep(CROWDED),
                launched => return Ok(KernelCopy(launched?)),
            }
        }
    }
}

/// A launch that copies a list. Dropping it withdraws it: then none of its bytes lands any more, also if
/// other kernels kept it from beginning.
pub(super) struct KernelCopy(Launch);

impl KernelCopy {
    /// Whether all bytes are in place; after [`KernelCopy::withdraw`] whether no byte lands any more.
    pub(super) fn is_done(&mut self) -> Result<bool, LaunchError> {
        self.0.is_done()
    }

    /// Begins to end it, or goes on; whether no byte lands any more. Never waits.
    pub(super) fn withdraw(&mut self) -> Result<bool, LaunchError> {
        self.0.withdraw()
    }
}

impl Drop for KernelCopy {
    fn drop(&mut self) {
        let asked = Instant::now();
        // After an error the context of the device is lost, in which nothing runs any more.
        while matches!(self.withdraw(), Ok(false)) {
            if asked.elapsed() > HANGS {
                return tracing::error!("a device hangs: a launch of it cannot be withdrawn");
            }
            std::thread::sleep(NAP);
        }
    }
}
