//! The choice of who copies on this machine, and lists that kernels copy.

use super::Job;
use crate::names::Op;
use crate::plan::Piece;
use crate::{AgentConfig, AgentError, CopyBy};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{BlockRun, BlockSide, Blocks, Buffer, Gpu, Launch};

/// Between host memory and that of a GPU a copy engine moves pieces of at least this many bytes, on
/// average, faster than a kernel: it has fewer and larger requests on the bus.
const ENGINE_FROM: u64 = 256 << 10;

/// The configuration of copies.
#[derive(Clone)]
pub(crate) struct Copying {
    pub(super) gpu: Arc<dyn Gpu>,
    pub(super) copy_by: CopyBy,
    kernel_blocks: Option<u32>,
    deadline: Duration,
}

impl Copying {
    pub(crate) fn new(gpu: &Arc<dyn Gpu>, config: &AgentConfig) -> Self {
        let AgentConfig { copy_by, kernel_blocks, deadline, .. } = *config;
        Self { gpu: gpu.clone(), copy_by, kernel_blocks, deadline }
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

    pub(super) fn launch(&self, list: &Blocks) -> Result<Launch, AgentError> {
        Ok(list.copy(&*self.gpu, self.kernel_blocks, self.deadline)?)
    }
}
