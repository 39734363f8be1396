//! The device: memory that kernels reach, modules with an address, launches.
use crate::error::{LaunchError, LoadError, RangeError};
use crate::grid;
use crate::launch::{Config, Launch, PACKET, check, fill_arguments, fill_packet};
use crate::memory::{Caching, Ranges, Registration, Rights};
use crate::module::Module;
use crate::object::CodeObject;
use memmap2::{MmapMut, MmapRaw};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An emulated GPU. Addresses of the process are its addresses: what is registered is reached as it is.
#[derive(Debug)]
pub struct Device {
    ranges: Arc<Ranges>,
    config: Config,
    launches: AtomicU64,
}

impl Device {
    /// A device without memory.
    pub fn new(config: Config) -> Device {
        Device { ranges: Arc::default(), config, launches: AtomicU64::new(0) }
    }

    /// Lets kernels reach `length` bytes at `start`, until the registration is dropped.
    ///
    /// # Errors
    /// [`RangeError`] if it is no range, or overlaps another.
    ///
    /// # Safety
    /// The bytes stay mapped with these rights until the registration has been dropped. While a kernel that was
    /// given their address runs, nobody holds a Rust reference to bytes that it writes, and who reads them at the
    /// time does so by atomic or volatile accesses.
    pub unsafe fn register(
        &self,
        start: *mut u8,
        length: usize,
        rights: Rights,
        caching: Caching,
    ) -> Result<Registration, RangeError> {
        // SAFETY: the caller promises it.
        unsafe { self.ranges.add(start, length, rights, caching) }
    }

    /// Gives a code object an address.
    ///
    /// # Errors
    /// [`LoadError::Target`] if it is for another processor, [`LoadError::Image`] where there is no memory for it.
    pub fn load(&self, object: &CodeObject) -> Result<Module, LoadError> {
        let (found, device) = (object.target(), self.config.target);
        if found != device {
            return Err(LoadError::Target { found, device });
        }
        Module::load(&self.ranges, object)
    }

    /// Runs a kernel to its end, on this thread. Other threads may launch at the same time.
    ///
    /// # Errors
    /// [`LaunchError`] if the launch does not fit the kernel, a wave faults, or it is stopped or late.
    pub fn launch(&self, module: &Module, launch: &Launch<'_>) -> Result<(), LaunchError> {
        let wrong = |what| LaunchError::Launch { kernel: launch.kernel.into(), what };
        let kernel = module
            .kernel(launch.kernel)
            .ok_or_else(|| wrong("no such kernel in the module".into()))?;
        check(kernel, launch).map_err(wrong)?;
        let mut memory = MmapMut::map_anon(PACKET as usize + kernel.metadata.kernarg_size as usize)
            .map_err(|error| wrong(format!("no memory for its arguments: {error}")))?;
        let packet = memory.as_ptr() as u64;
        fill_packet(&mut memory, kernel, module.base(), launch);
        fill_arguments(&mut memory[PACKET as usize..], kernel, launch);
        let memory = MmapRaw::from(memory);
        // SAFETY: the registration is dropped before the mapping, to whose bytes there is no reference.
        let registration = unsafe {
            self.register(memory.as_mut_ptr(), memory.len(), Rights::Read, Caching::Uncached)
        };
        let registration = registration.map_err(|error| wrong(error.to_string()))?;
        let seed = self.config.seed.wrapping_add(self.launches.fetch_add(1, Relaxed));
        let config = Config { seed, ..self.config };
        let result = grid::run(&self.ranges, config, module, kernel, launch, packet);
        drop(registration);
        result
    }
}
