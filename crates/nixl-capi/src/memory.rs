//! Memory of the program, which agents are given as long as it is registered.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, GpuChoice};
use warpverbs_mem::{Mapped, Region};
use warpverbs_nixl::Desc;

/// Adopted memory begins at a multiple of this.
const ALIGN: u64 = 16;

/// Adopts the ranges of one call.
#[derive(Default)]
pub(crate) struct Adopter {
    /// Looked up with the first range of host memory; `Some(None)` where the system does not say.
    mapped: Option<Option<Mapped>>,
}

impl Adopter {
    /// The memory of a descriptor: the host's, or that of a GPU.
    pub(crate) fn adopt(
        &mut self,
        gpu: Option<&Arc<dyn Gpu>>,
        desc: &Desc,
    ) -> Result<Buffer, String> {
        let lead = desc.addr % ALIGN;
        let (start, all) = (desc.addr - lead, desc.len.saturating_add(lead));
        let len = usize::try_from(all).map_err(|_| "longer than memory can be".to_owned())?;
        let whole = match gpu {
            Some(gpu) => {
                // SAFETY: by the interface the program frees it after the deregistration. The bytes
                // before it are of the same allocation, which begins at a multiple of 256.
                let whole = unsafe { gpu.adopt(start, len, Arc::new(())) };
                whole.map_err(|error| error.to_string())?
            }
            None => {
                if let Some(mapped) = self.mapped.get_or_insert_with(mapped) {
                    mapped.check(desc.addr, desc.len).map_err(|error| error.to_string())?;
                }
                // SAFETY: mapped for reading and writing just now, the bytes before it on the same page,
                // and by the interface it stays so until the deregistration.
                Buffer::of_region(unsafe { Region::foreign(start, len, ()) })
            }
        };
        whole.slice(lead, len - lead as usize).map_err(|error| error.to_string())
    }
}

fn mapped() -> Option<Mapped> {
    let now = Mapped::now();
    now.map_err(|error| tracing::warn!(target: "nixl", "memory is registered unseen: {error}")).ok()
}

/// The GPU that the program uses in this thread, if it has loaded the driver of NVIDIA's.
pub(crate) fn current_gpu() -> Option<Arc<dyn Gpu>> {
    let ordinal = current_device()?;
    let opened = warpverbs_gpu::open(GpuChoice::Cuda(ordinal));
    opened.map_err(|error| tracing::warn!(target: "nixl", "GPU {ordinal}: {error}")).ok()
}

fn current_device() -> Option<u32> {
    // SAFETY: a name that ends with a zero byte. Nothing is loaded; a driver that is there stays.
    let driver =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if driver.is_null() {
        return None;
    }
    let function = symbol(driver, c"cuCtxGetDevice")?;
    // SAFETY: the driver's function of this name has this type.
    let get = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(function)
    };
    let mut device = -1;
    // SAFETY: a place for one device.
    let result = unsafe { get(&mut device) };
    // Without a context, or without the driver's initialisation, the program uses no GPU.
    (result == 0).then(|| u32::try_from(device).ok()).flatten()
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a library that is open, and a name that ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopted_memory_may_begin_anywhere() {
        let mut bytes = vec![0_u8; 256];
        for lead in 0..17 {
            let desc = Desc { addr: bytes[lead..].as_mut_ptr() as u64, len: 33, dev: 0 };
            let buffer = Adopter::default().adopt(None, &desc).unwrap();
            assert_eq!((buffer.region().addr(), buffer.region().len()), (desc.addr, 33));
            buffer.region().write(0, &[lead as u8 + 1; 33]).unwrap();
        }
        let mut expected = vec![0_u8; 256];
        for lead in 0..17 {
            expected[lead..lead + 33].fill(lead as u8 + 1);
        }
        assert_eq!(bytes, expected);
    }
}
