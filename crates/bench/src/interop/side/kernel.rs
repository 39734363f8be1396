//! Work that a kernel posts, on the host's SIMT device.

use super::Work;
use crate::interop::case::{Op, Status};
use anyhow::{Result, bail};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice, KernelPtr, Place, Remote};
use warpverbs::transport::{Endpoint, LocalRegion};
use warpverbs_test_kernels::perf;

/// How often each work request is posted, and by how many lanes.
const TIMES: u32 = 40;
const LANES: u32 = 64;
/// The longest wait in a kernel: emulated machines are slow, and some networks lose packets.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// Where kernels run.
pub(super) struct Kernels(Arc<dyn Gpu>);

impl Kernels {
    pub(super) fn new() -> Result<Self> {
        let gpu = gpu::open(GpuChoice::Simt)?;
        gpu.load(&perf::IMAGE)?;
        Ok(Self(gpu))
    }

    pub(super) fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.0
    }

    /// A kernel posts `work` again and again and waits for its end.
    pub(super) fn post(&self, qp: &Endpoint, local: LocalRegion, work: &Work) -> Result<Status> {
        let op = match work.op {
            Op::Write => 0,
            Op::Read => 1,
            other => bail!("no kernel here posts {other:?}"),
        };
        let remote = Remote { addr: work.remote.addr, rkey: work.remote.rkey };
        let target = perf::Target { qp: qp.device_qp(), local: local.into(), remote };
        let report = self.0.alloc(24, Place::Device)?;
        let kernel = perf::Stream {
            targets: KernelPtr::upload(&*self.0, &[target])?,
            count: 1,
            op,
            bytes: work.bytes,
            iters: TIMES,
            report: KernelPtr::new(&report),
        };
        self.0.launch(&kernel, Dim::new(2, LANES / 2), 2 * LIMIT)?.wait()?;
        let mut status = [0; 8];
        self.0.read(&report, 0, &mut status)?;
        Ok(match u64::from_le_bytes(status) {
            0 => Status::Success,
            code => Status::Other(format!("kernel status {code:#x}; {}", qp.health()?)),
        })
    }
}
