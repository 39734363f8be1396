//! The word that aborts every wait, on host and device.

use crate::TransportError;
use crate::alloc::{read, write};
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu};
use warpverbs_nic::{NicError, StopWatcher};

/// Values of the abort word besides 0. Kernels treat them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Abort {
    /// [`Endpoint::abort`](crate::Endpoint::abort) was called.
    ByHost = 1,
    /// The NIC stopped.
    NicStopped = 2,
}

/// The word that aborts every wait: 0, or an [`Abort`].
pub(crate) struct AbortWord {
    pub(super) gpu: Option<Arc<dyn Gpu>>,
    pub(super) buf: Buffer,
    pub(super) at: u64,
}

impl AbortWord {
    pub(crate) fn read(&self) -> Result<u32, TransportError> {
        let mut word = [0; 4];
        read(self.gpu.as_ref(), &self.buf, self.at, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    pub(crate) fn set(&self, by: Abort) -> Result<(), TransportError> {
        write(self.gpu.as_ref(), &self.buf, self.at, &(by as u32).to_le_bytes())
    }
}

/// Nothing completes any more: all waits end, on host and device.
impl StopWatcher for AbortWord {
    fn nic_stopped(&self, cause: &NicError) {
        if let Err(error) = self.set(Abort::NicStopped) {
            tracing::error!(%cause, %error, "waits end at their deadlines");
        }
    }
}
