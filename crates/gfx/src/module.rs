//! A code object that has an address.
use crate::decode;
use crate::error::{DecodeError, LoadError};
use crate::inst::Inst;
use crate::memory::{Caching, Own, Ranges, Rights};
use crate::object::{CodeObject, Kernel};
use std::sync::{Arc, OnceLock};

/// A code object in memory, relocated. Kernels may write to its data; its code is what was loaded.
#[derive(Debug)]
pub struct Module {
    pub(crate) object: CodeObject,
    memory: Own,
    /// Decoded when first executed, one for each word of the code.
    instructions: Box<[OnceLock<Result<Inst, DecodeError>>]>,
}

impl Module {
    /// Gives a code object an address.
    pub(crate) fn load(ranges: &Arc<Ranges>, object: &CodeObject) -> Result<Module, LoadError> {
        let fill = |bytes: &mut [u8]| {
            let base = bytes.as_ptr() as u64;
            bytes.copy_from_slice(&object.image);
            for &(offset, value) in &object.relocations {
                let value = base.wrapping_add(value).to_le_bytes();
                bytes[offset as usize..][..8].copy_from_slice(&value);
            }
        };
        let memory = ranges.own(object.image.len(), Rights::ReadWrite, Caching::Cached, fill);
        let memory = memory.map_err(LoadError::Image)?;
        let words = (object.code.end - object.code.start) as usize / 4;
        let instructions = (0..words).map(|_| OnceLock::new()).collect();
        Ok(Module { object: object.clone(), memory, instructions })
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.object.kernel(name)
    }

    /// All kernels.
    pub fn kernels(&self) -> &[Kernel] {
        self.object.kernels()
    }

    /// Address of the image's byte 0.
    pub(crate) fn base(&self) -> u64 {
        self.memory.address()
    }

    /// The instruction at an offset in the image, a multiple of 4; none outside of the code.
    pub(crate) fn instruction(&self, pc: u64) -> Option<&Result<Inst, DecodeError>> {
        let offset =
            pc.checked_sub(self.object.code.start).filter(|offset| offset.is_multiple_of(4))?;
        let cell = self.instructions.get(offset as usize / 4)?;
        Some(cell.get_or_init(|| {
            decode::decode(self.object.target, &self.object.code().1[offset as usize..])
        }))
    }
}
