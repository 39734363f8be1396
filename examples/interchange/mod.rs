//! Names, counts and comparisons for the steps of the interchange.

pub(crate) mod shmem;

use crate::common::{DEADLINE, words};
use anyhow::{Result, ensure};
use std::sync::Arc;
use warpverbs::gpu::{Buffer, Dim, Gpu, KernelPtr, Place};
use warpverbs::kernels::interchange::Verify;
use warpverbs::raw::verbs::{self, PortState, Verbs};

/// Grid of the kernels that fill and verify.
pub(crate) const GRID: Dim = Dim::new(4, 64);

/// A device as it is told of.
pub(crate) fn name(gpu: &Arc<dyn Gpu>) -> String {
    format!("{} #{}", gpu.info().name, gpu.info().ordinal)
}

/// Ports of RDMA devices that are up, and the software NIC's own.
pub(crate) fn active_ports() -> usize {
    let devices = Verbs::load().ok().and_then(|verbs| verbs.devices().ok()).unwrap_or_default();
    let of_device = |device: &verbs::Device| {
        let Ok(context) = device.open() else { return 0 };
        let ports = context.attr().map_or(0, |attr| attr.ports);
        let active =
            |port: &u8| context.port(*port).is_ok_and(|found| found.state == PortState::Active);
        (1..=ports).filter(active).count()
    };
    1 + devices.iter().map(of_device).sum::<usize>()
}

/// Has a kernel of `gpu` compare every byte.
pub(crate) fn verify(gpu: &Arc<dyn Gpu>, buffer: &Buffer, value: u8) -> Result<()> {
    let count = gpu.alloc(8, Place::Device)?;
    let (data, bytes) = (KernelPtr::new(buffer), buffer.len() as u64);
    let kernel = Verify { data, bytes, value, wrong: KernelPtr::new(&count) };
    gpu.launch(&kernel, GRID, DEADLINE)?.wait()?;
    let [wrong] = words(gpu, &count)?;
    ensure!(wrong == 0, "{wrong} of {bytes} bytes are not {value}");
    Ok(())
}
