//! How a kernel ended: the status word that it leaves, and what the endpoints know of the cause.

use crate::{Endpoint, KernelError, Outcome, TransportError};
use std::sync::Arc;
use warpverbs_gpu::{Buffer, DeviceStatus, Gpu, KernelPtr, Place};

/// The word in which a kernel leaves its first bad status, `wv::Status*` in device code. Zero, which
/// is success, until `wv::keep_first` writes it.
pub struct KernelStatus {
    gpu: Arc<dyn Gpu>,
    word: Buffer,
}

impl KernelStatus {
    /// A word in memory of `gpu`, where the kernel is to run.
    pub fn new(gpu: &Arc<dyn Gpu>) -> Result<Self, TransportError> {
        Ok(Self { gpu: gpu.clone(), word: gpu.alloc(size_of::<DeviceStatus>(), Place::Device)? })
    }

    /// For the kernel.
    pub fn pointer(&self) -> KernelPtr<DeviceStatus> {
        KernelPtr::new(&self.word)
    }

    /// The word as it is now. A kernel that still runs may yet write it.
    pub fn read(&self) -> Result<DeviceStatus, TransportError> {
        let mut word = [0; size_of::<DeviceStatus>()];
        self.gpu.read(&self.word, 0, &mut word)?;
        Ok(DeviceStatus(u32::from_ne_bytes(word)))
    }

    /// Makes the word zero again, for another launch.
    pub fn clear(&self) -> Result<(), TransportError> {
        Ok(self.gpu.write(&self.word, 0, &[0; size_of::<DeviceStatus>()])?)
    }

    /// Fails with [`TransportError::Kernel`] unless the kernel succeeded; the error has the health of those
    /// `endpoints` that are not well.
    pub fn check(&self, endpoints: &[&Endpoint]) -> Result<(), TransportError> {
        let Err(outcome) = Outcome::of(self.read()?) else { return Ok(()) };
        let health = endpoints.iter().map(|endpoint| endpoint.health());
        let mut health = health.collect::<Result<Vec<_>, _>>()?;
        health.retain(|health| !health.is_ok());
        Err(KernelError { outcome, health }.into())
    }
}
