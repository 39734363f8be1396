//! Memory that a program names by address.

use crate::{Buffer, Gpu, GpuError, Keep};
use thiserror::Error;
use warpverbs_mem::{Mapped, NotMapped, Region};

/// A range that cannot be adopted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// More bytes than an address space has.
    #[error("{0:#x} bytes, longer than memory can be")]
    Length(u64),
    /// Bytes of the host that are not there or may not be changed.
    #[error("{0}, expected memory that can be read and written")]
    NotMapped(NotMapped),
    /// An error of the device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// Adopts ranges that a program names in one call.
pub struct Adopter {
    keep: Keep,
    /// Looked up with the first range of host memory; `Some(None)` where the system does not say.
    mapped: Option<Option<Mapped>>,
}

impl Adopter {
    /// `keep` lives as long as any of the ranges.
    pub fn new(keep: Keep) -> Self {
        Self { keep, mapped: None }
    }

    /// `[addr, addr + len)`: memory of `gpu`, or of the host without one. It may begin anywhere.
    ///
    /// # Errors
    /// The range is too long, not memory of the device, or not mapped for reading and writing.
    ///
    /// # Safety
    /// What is there at this moment must stay allocated and mapped until `keep` is dropped.
    pub unsafe fn adopt(
        &mut self,
        gpu: Option<&dyn Gpu>,
        addr: u64,
        len: u64,
    ) -> Result<Buffer, AdoptError> {
        let bytes = usize::try_from(len).map_err(|_| AdoptError::Length(len))?;
        if let Some(gpu) = gpu {
            // SAFETY: the caller's promise; the device knows which memory is its own.
            return Ok(unsafe { gpu.adopt(addr, bytes, self.keep.clone()) }?);
        }
        if let Some(mapped) = self.mapped.get_or_insert_with(mapped) {
            mapped.check(addr, len).map_err(AdoptError::NotMapped)?;
        }
        // SAFETY: the range is mapped for reading and writing, and stays so by the caller's promise.
        let region = unsafe { Region::foreign(addr, bytes, self.keep.clone()) };
        Ok(Buffer::of_region(region))
    }
}

fn mapped() -> Option<Mapped> {
    let now = Mapped::now();
    now.map_err(|error| tracing::warn!("memory is adopted unseen: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::simt::{SimtConfig, SimtDevice};
    use std::sync::Arc;

    #[test]
    fn memory_may_begin_anywhere() {
        let gpu = SimtDevice::new(SimtConfig::default()).unwrap();
        for device in [None, Some(&gpu as &dyn Gpu)] {
            let whole = gpu.alloc(256, Place::Device).unwrap();
            let keep = Arc::new(whole.clone());
            let mut adopter = Adopter::new(keep.clone());
            let mut expected = [0_u8; 256];
            for lead in 0..17 {
                let addr = whole.region().addr() + lead;
                // SAFETY: `keep` holds the memory.
                let buffer = unsafe { adopter.adopt(device, addr, 33) }.unwrap();
                assert_eq!((buffer.region().addr(), buffer.len()), (addr, 33));
                buffer.region().write(0, &[lead as u8 + 1; 33]).unwrap();
                expected[lead as usize..][..33].fill(lead as u8 + 1);
            }
            let mut bytes = [0; 256];
            whole.region().read(0, &mut bytes).unwrap();
            assert_eq!(bytes, expected);
            drop(adopter);
            assert_eq!(Arc::strong_count(&keep), 1);
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let gpu = SimtDevice::new(SimtConfig::default()).unwrap();
        let mut adopter = Adopter::new(Arc::new(()));
        // SAFETY: nothing is adopted.
        let refused = unsafe { adopter.adopt(None, 16, 16) }.unwrap_err();
        assert!(matches!(refused, AdoptError::NotMapped(NotMapped::Start)), "{refused}");
        // SAFETY: nothing is adopted.
        let refused = unsafe { adopter.adopt(Some(&gpu), 0, 16) }.unwrap_err();
        assert!(matches!(refused, AdoptError::Gpu(GpuError::BadSetting { .. })), "{refused}");
    }
}
