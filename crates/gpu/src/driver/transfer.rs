//! Reads and writes of device memory by the host, through a pinned buffer on a private stream.

use super::context::Context;
use super::copy::CopyEngine;
use super::copy_policy::CopyPolicy;
use super::lock::lock;
use super::pinned::SharedMem;
use crate::GpuError;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use warpverbs_mem::{CopyTicket, Region};

const STAGING: usize = 1 << 20;
/// A part of at most `STAGING` bytes takes microseconds; this long means that the device hangs.
const DEADLINE: Duration = Duration::from_secs(10);

/// Moves bytes between device memory and ordinary host memory, and waits.
pub(crate) struct Transfer {
    engine: CopyEngine,
    staging: Mutex<Staging>,
}

struct Staging {
    buffer: Region,
    // Set while the device may still touch `buffer`.
    busy: Option<CopyTicket>,
}

impl Transfer {
    pub(crate) fn new(context: &'static Context) -> Result<Self, GpuError> {
        let (buffer, _) = SharedMem::region(context.driver(), STAGING)?;
        // Only ever between host and device, so the policy does not matter.
        let engine = CopyEngine::new(context, CopyPolicy::ByRoom)?;
        Ok(Self { engine, staging: Mutex::new(Staging { buffer, busy: None }) })
    }

    /// Copies `data` to `region` from `offset` on.
    pub(crate) fn write(&self, region: &Region, offset: u64, data: &[u8]) -> Result<(), GpuError> {
        let to = region.range(offset, data.len())?;
        let mut staging = lock(&self.staging);
        for (i, part) in data.chunks(STAGING).enumerate() {
            self.settle(&mut staging, region)?;
            staging.buffer.write(0, part)?;
            let (to, from) = (to + (i * STAGING) as u64, staging.buffer.addr());
            // SAFETY: inside `region` and inside the staging buffer; both stay until `settle` has
            // seen the copy land, or for ever if it never does.
            staging.busy = Some(unsafe { self.engine.enqueue(to, from, part.len()) }?);
        }
        self.settle(&mut staging, region)
    }

    /// Copies bytes of `region` from `offset` on to `out`.
    pub(crate) fn read(
        &self,
        region: &Region,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), GpuError> {
        let from = region.range(offset, out.len())?;
        let mut staging = lock(&self.staging);
        for (i, part) in out.chunks_mut(STAGING).enumerate() {
            self.settle(&mut staging, region)?;
            let (to, from) = (staging.buffer.addr(), from + (i * STAGING) as u64);
            // SAFETY: as in `write`.
            staging.busy = Some(unsafe { self.engine.enqueue(to, from, part.len()) }?);
            self.settle(&mut staging, region)?;
            staging.buffer.read(0, part)?;
        }
        Ok(())
    }

    /// Zeroes all of `region`: much by the driver's kernel while running kernels leave it room, for which it
    /// would wait, else by copies. One copy takes little longer, and waits for no kernel of others, either.
    pub(crate) fn zero(&self, region: &Region) -> Result<(), GpuError> {
        let mut staging = lock(&self.staging);
        self.settle(&mut staging, region)?;
        if region.len() > STAGING {
            // SAFETY: all of `region`, which stays until `settle` has seen the end.
            staging.busy = unsafe { self.engine.zero(region.addr(), region.len()) }?;
        }
        if staging.busy.is_some() {
            return self.settle(&mut staging, region);
        }
        staging.buffer.fill(0, STAGING.min(region.len()), 0)?;
        let from = staging.buffer.addr();
        for at in (0..region.len()).step_by(STAGING) {
            let to = region.addr() + at as u64;
            // SAFETY: as in `write`; the staging buffer is only read.
            let started = unsafe { self.engine.enqueue(to, from, STAGING.min(region.len() - at)) };
            staging.busy = Some(started?);
        }
        self.settle(&mut staging, region)
    }

    /// Waits until the device has done with the staging buffer and with `region`.
    fn settle(&self, staging: &mut Staging, region: &Region) -> Result<(), GpuError> {
        let Some(ticket) = staging.busy else { return Ok(()) };
        let started = Instant::now();
        while !self.engine.landed(ticket)? {
            if started.elapsed() > DEADLINE {
                // The copy may yet come, so neither side may ever be freed.
                std::mem::forget(region.clone());
                let device = region.kind().to_string();
                return Err(GpuError::Stuck { device, what: "a copy", after: DEADLINE });
            }
            std::hint::spin_loop();
        }
        staging.busy = None;
        Ok(())
    }
}
