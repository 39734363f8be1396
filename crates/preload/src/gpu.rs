//! Memory of NVIDIA GPUs that the program gives to the device. The NIC moves its bytes by copies of
//! the driver that the program has loaded; programs without one never come here.

use crate::process::Own;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_gpu::driver::{CopyPath, CopyPolicy, DriverGpu, OpenOptions};
use warpverbs_gpu::{Gpu, GpuChoice, GpuError, open_with, owner};
use warpverbs_mem::Region;
use warpverbs_uverbs::{Errno, Refusal};

/// Use of memory. Each has copy engines of its own, so that WQEs that a doorbell announces are
/// not read behind the payload of a long message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Keys name it.
    Payload,
    /// Queues, CQs and doorbell records lie there.
    Queues,
}

/// The GPUs whose memory was given so far, each with a copy engine.
static OPEN: Own<Mutex<Vec<Opened>>> = Own::new();

type Opened = (Use, GpuChoice, Arc<DriverGpu>);

/// `len` bytes at `address`, if the program has loaded the driver of GPUs: an error if none of them
/// has the memory.
pub(crate) fn region(
    what: &str,
    usage: Use,
    address: u64,
    len: u64,
) -> Option<Result<Region, Refusal>> {
    // SAFETY: a name that ends with a zero byte. Nothing is loaded; a driver that is there stays.
    let driver =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    (!driver.is_null()).then(|| adopt(what, usage, address, len))
}

fn adopt(what: &str, usage: Use, address: u64, len: u64) -> Result<Region, Refusal> {
    let refuse = |why: &dyn Display| {
        Refusal::new(Errno::EFAULT, format!("{what}: {len:#x} bytes at {address:#x}: {why}"))
    };
    let choice = owner(address).map_err(|error| refuse(&error))?;
    let choice = choice.ok_or_else(|| refuse(&"not the memory of a GPU"))?;
    let gpu = device(usage, choice).map_err(|error| refuse(&error))?;
    let bytes = usize::try_from(len);
    let bytes = bytes.map_err(|_| Refusal::invalid(format!("{what}: {len:#x} bytes")))?;
    // SAFETY: the program frees the memory after the key, as with a device of hardware. If it does
    // not, the driver refuses copies of addresses that it does not know.
    let adopted = unsafe { gpu.adopt(address, bytes, Arc::new(())) };
    Ok(adopted.map_err(|error| refuse(&error))?.region().clone())
}

/// The GPU, opened once for each use. Copies never wait for kernels, which the program launches by itself.
fn device(usage: Use, choice: GpuChoice) -> Result<Arc<DriverGpu>, GpuError> {
    let mut open = OPEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., gpu)) = open.iter().find(|(of, which, _)| (*of, *which) == (usage, choice)) {
        return Ok(gpu.clone());
    }
    let copy = Some(CopyPolicy::Always(CopyPath::Bounce));
    let gpu = Arc::new(open_with(choice, OpenOptions { copy, ..OpenOptions::default() })?);
    open.push((usage, choice, gpu.clone()));
    Ok(gpu)
}
