//! An open NIC as everything made on it holds it.

use crate::TransportError;
use crate::provider::{Nic, QueuePair};
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_gpu::{Buffer, Gpu, GpuKind};

/// Parts of a device that its objects keep alive.
pub(crate) struct DeviceShared {
    pub(crate) nic: Arc<dyn Nic>,
    /// The doorbell page that QPs share as each GPU sees it: mapped once, for ever.
    mapped: Mutex<Vec<((GpuKind, u32), Buffer)>>,
}

impl DeviceShared {
    pub(crate) fn new(nic: Arc<dyn Nic>) -> Self {
        Self { nic, mapped: Mutex::default() }
    }

    /// The doorbell page of `qp` in `gpu`'s address space.
    pub(crate) fn doorbells_in(
        &self,
        gpu: &dyn Gpu,
        qp: &dyn QueuePair,
    ) -> Result<Buffer, TransportError> {
        if let Some(own) = qp.own_doorbells() {
            return Ok(gpu.map(own)?);
        }
        let key = (gpu.info().kind, gpu.info().ordinal);
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, buffer)) = mapped.iter().find(|(gpu, _)| *gpu == key) {
            return Ok(buffer.clone());
        }
        let buffer = gpu.map(self.nic.doorbells())?;
        mapped.push((key, buffer.clone()));
        Ok(buffer)
    }
}
