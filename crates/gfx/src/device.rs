//! The device: memory that kernels reach, modules with an address, launches.
use crate::error::{LaunchError, LoadError, RangeError};
use crate::grid;
use crate::launch::{Config, Launch, PACKET, check, fill};
use crate::memory::{Caching, Ranges, Registration, Rights};
use crate::module::Module;
use crate::object::CodeObject;
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
        let length = PACKET as usize + kernel.metadata.kernarg_size as usize;
        let fill = |bytes: &mut [u8]| fill(bytes, kernel, module.base(), launch);
        let packet = self.ranges.own(length, Rights::Read, Caching::Uncached, fill);
        let packet = packet.map_err(wrong)?;
        let seed = self.config.seed.wrapping_add(self.launches.fetch_add(1, Relaxed));
        let config = Config { seed, ..self.config };
        grid::run(&self.ranges, config, module, kernel, launch, packet.address())
    }
}
