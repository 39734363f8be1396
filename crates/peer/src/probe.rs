//! Whether a mapping shows the owner's memory: a kernel writes a word through it, the owner reads it.

use crate::kernels::probe;
use std::time::Duration;
use thiserror::Error;
use warpverbs_gpu::{Buffer, Dim, Gpu, GpuError, KernelPtr, LaunchError};

/// A mapping is not to be relied on.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ProbeError {
    /// The kernel did not start.
    #[error(transparent)]
    Start(#[from] GpuError),
    /// The kernel ended badly or not at all.
    #[error(transparent)]
    Run(#[from] LaunchError),
    /// The word written is not there.
    #[error("the word at offset {offset:#x} is {found:#x}, the peer wrote {expected:#x}")]
    NotThere { offset: u64, expected: u64, found: u64 },
}

/// Compiles and loads the probe, so that no later [`write_word`] waits for running kernels.
///
/// # Errors
/// The compiler's or the driver's error.
pub fn load_probe(gpu: &dyn Gpu) -> Result<(), GpuError> {
    gpu.load(&probe::IMAGE)
}

/// Has a kernel of `gpu` write `value` to the u64 at `offset` of a peer's memory. When this returns,
/// the store has been performed.
///
/// # Errors
/// The offset is not one of a whole u64, or the kernel failed.
pub fn write_word(
    gpu: &dyn Gpu,
    attached: &Buffer,
    offset: u64,
    value: u64,
    timeout: Duration,
) -> Result<(), ProbeError> {
    let word = KernelPtr::at(attached, offset, 8).map_err(GpuError::from)?;
    let kernel = probe::WriteWord { word, value };
    Ok(gpu.launch(&kernel, Dim::new(1, 1), timeout)?.wait()?)
}

/// Checks that the owner sees what the peer's [`write_word`] wrote.
///
/// # Errors
/// [`ProbeError::NotThere`] if it does not.
pub fn read_back(
    gpu: &dyn Gpu,
    own: &Buffer,
    offset: u64,
    expected: u64,
) -> Result<(), ProbeError> {
    let mut word = [0; 8];
    gpu.read(own, offset, &mut word)?;
    match u64::from_ne_bytes(word) {
        found if found == expected => Ok(()),
        found => Err(ProbeError::NotThere { offset, expected, found }),
    }
}
