//! The program's memory.

use crate::{Errno, Refusal};

/// The memory of the program that makes a call. An address that the program does not have is
/// [`Errno::EFAULT`], never a crash.
pub trait UserMemory {
    /// Copies the bytes from `address` on into `out`.
    ///
    /// # Errors
    /// [`Errno::EFAULT`].
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno>;

    /// Copies `bytes` to `address`.
    ///
    /// # Errors
    /// [`Errno::EFAULT`].
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno>;
}

/// This many bytes from `address` on; `what` names them in the refusal.
pub(crate) fn load(
    memory: &impl UserMemory,
    address: u64,
    len: usize,
    what: &str,
) -> Result<Vec<u8>, Refusal> {
    let mut bytes = vec![0; len];
    memory.read(address, &mut bytes).map_err(|errno| {
        Refusal::new(errno, format!("{what}: {len} bytes at {address:#x} cannot be read"))
    })?;
    Ok(bytes)
}

/// Writes `bytes` to `address`.
pub(crate) fn store(
    memory: &impl UserMemory,
    address: u64,
    bytes: &[u8],
    what: &str,
) -> Result<(), Refusal> {
    let len = bytes.len();
    memory.write(address, bytes).map_err(|errno| {
        Refusal::new(errno, format!("{what}: {len} bytes at {address:#x} cannot be written"))
    })
}
