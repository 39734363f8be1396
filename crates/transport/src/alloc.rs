//! Zeroed memory of a GPU or of the host, which the host reads and writes alike.

use crate::TransportError;
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::HostBuf;

/// Allocates zeroed memory: of the device, or plain host memory.
pub(crate) fn alloc(
    gpu: Option<&Arc<dyn Gpu>>,
    len: u64,
    place: Place,
) -> Result<Buffer, TransportError> {
    match gpu {
        Some(gpu) => Ok(gpu.alloc(len as usize, place)?),
        None => Ok(Buffer::of_region(HostBuf::region(len as usize)?)),
    }
}

pub(crate) fn read(
    gpu: Option<&Arc<dyn Gpu>>,
    buf: &Buffer,
    at: u64,
    out: &mut [u8],
) -> Result<(), TransportError> {
    match gpu {
        Some(gpu) => gpu.read(buf, at, out)?,
        None => buf.region().read(at, out)?,
    }
    Ok(())
}

pub(crate) fn write(
    gpu: Option<&Arc<dyn Gpu>>,
    buf: &Buffer,
    at: u64,
    data: &[u8],
) -> Result<(), TransportError> {
    match gpu {
        Some(gpu) => gpu.write(buf, at, data)?,
        None => buf.region().write(at, data)?,
    }
    Ok(())
}
