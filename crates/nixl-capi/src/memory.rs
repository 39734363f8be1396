//! Memory of the program, which agents are given as long as it is registered.

use std::ffi::{CStr, c_int, c_void};
use std::fs;
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, GpuChoice};
use warpverbs_mem::Region;
use warpverbs_nixl::Desc;

/// Adopted memory begins at a multiple of this.
const ALIGN: u64 = 16;

/// Adopts the ranges of one call.
#[derive(Default)]
pub(crate) struct Adopter {
    /// Looked up with the first range of host memory.
    mapped: Option<Mapped>,
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
                self.mapped.get_or_insert_with(Mapped::now).check(desc.addr, desc.len)?;
                // SAFETY: mapped for reading and writing just now, the bytes before it on the same page,
                // and by the interface it stays so until the deregistration.
                Buffer::of_region(unsafe { Region::foreign(start, len, ()) })
            }
        };
        whole.slice(lead, len - lead as usize).map_err(|error| error.to_string())
    }
}

/// Which addresses of this process can be read and written, in order; neighbours are one range. `None`:
/// the system does not say.
struct Mapped(Option<Vec<(u64, u64)>>);

impl Mapped {
    fn now() -> Self {
        match fs::read_to_string("/proc/self/maps") {
            Ok(text) => Self(Some(ranges(&text))),
            Err(error) => {
                tracing::warn!(target: "nixl", "memory is registered unseen: /proc/self/maps: {error}");
                Self(None)
            }
        }
    }

    /// Whether all of it can be read and written.
    fn check(&self, addr: u64, len: u64) -> Result<(), String> {
        let Some(ranges) = &self.0 else { return Ok(()) };
        let at = ranges.partition_point(|(start, _)| *start <= addr);
        let end = at.checked_sub(1).map_or(0, |at| ranges[at].1);
        match addr.checked_add(len) {
            Some(last) if last <= end => Ok(()),
            _ if end <= addr => Err("not mapped for reading and writing".into()),
            _ => Err(format!("mapped for reading and writing only up to {end:#x}")),
        }
    }
}

/// The ranges that a text in the form of `/proc/self/maps` says to be readable and writable.
fn ranges(text: &str) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let bounds = words.next().and_then(|bounds| bounds.split_once('-'));
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let bounds = bounds.and_then(|(start, end)| Some((number(start)?, number(end)?)));
        let writable = words.next().is_some_and(|rights| rights.starts_with("rw"));
        let Some((start, end)) = bounds.filter(|_| writable) else { continue };
        match all.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => all.push((start, end)),
        }
    }
    all
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

    const MAPS: &str = "\
1000-2000 r--p 00000000 00:01 17   /a program
2000-3000 rw-p 00000000 00:00 0
3000-5000 rw-s 00000000 00:01 18   /memory (deleted)
5000-6000 ---p 00000000 00:00 0
6000-7000 rwxp 00000000 00:00 0    [heap]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    #[test]
    fn ranges_are_those_that_can_be_read_and_written() {
        let mapped = Mapped(Some(ranges(MAPS)));
        assert_eq!(mapped.0, Some(vec![(0x2000, 0x5000), (0x6000, 0x7000)]));
        for (addr, len) in [(0x2000, 0x3000), (0x2fff, 2), (0x4fff, 1), (0x6010, 0xff0)] {
            mapped.check(addr, len).unwrap();
        }
        for (addr, len) in [(0x10, 1), (0x1fff, 1), (0x5000, 1), (0x7000, 1), (u64::MAX, 1)] {
            let why = mapped.check(addr, len).unwrap_err();
            assert_eq!(why, "not mapped for reading and writing", "{addr:#x}");
        }
        for (addr, len) in [(0x2000, 0x3001), (0x4fff, 0x1002), (0x2000, u64::MAX)] {
            let why = mapped.check(addr, len).unwrap_err();
            assert_eq!(why, "mapped for reading and writing only up to 0x5000", "{addr:#x}");
        }
    }

    #[test]
    fn own_memory_is_found() {
        let bytes = [1_u8; 100];
        let mapped = Mapped::now();
        mapped.check(bytes.as_ptr() as u64, 100).unwrap();
        // Code is not writable.
        let code = own_memory_is_found as *const () as u64;
        assert!(mapped.check(code, 1).is_err());
    }

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
