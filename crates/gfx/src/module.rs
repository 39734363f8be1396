//! A code object that has an address.
use crate::decode;
use crate::error::{DecodeError, LoadError};
use crate::inst::Inst;
use crate::memory::{Caching, Ranges, Registration, Rights};
use crate::object::{CodeObject, Kernel};
use memmap2::{MmapMut, MmapRaw};
use std::sync::{Arc, OnceLock};

/// A code object in memory, relocated. Kernels may write to its data; its code is what was loaded.
#[derive(Debug)]
pub struct Module {
    pub(crate) object: CodeObject,
    // Before the memory: fields are dropped in order.
    _registration: Registration,
    memory: MmapRaw,
    /// Decoded when first executed, one for each word of the code.
    instructions: Box<[OnceLock<Result<Inst, DecodeError>>]>,
}

impl Module {
    /// Gives a code object an address.
    pub(crate) fn load(ranges: &Arc<Ranges>, object: &CodeObject) -> Result<Module, LoadError> {
        let no_memory = |error: &dyn std::error::Error| LoadError::Image(error.to_string());
        let length = object.image.len();
        let mut memory = MmapMut::map_anon(length).map_err(|error| no_memory(&error))?;
        let base = memory.as_ptr() as u64;
        memory.copy_from_slice(&object.image);
        for relocation in &object.relocations {
            let value = base.wrapping_add(relocation.value);
            memory[relocation.offset as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let memory = MmapRaw::from(memory);
        // SAFETY: the module drops the registration before the mapping, and makes no reference to its bytes.
        let registration =
            unsafe { ranges.add(memory.as_mut_ptr(), length, Rights::ReadWrite, Caching::Cached) };
        let registration = registration.map_err(|error| no_memory(&error))?;
        let words = (object.code.end - object.code.start) as usize / 4;
        let instructions = (0..words).map(|_| OnceLock::new()).collect();
        Ok(Module { object: object.clone(), memory, _registration: registration, instructions })
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.object.kernel(name)
    }

    /// All kernels.
    pub fn kernels(&self) -> &[Kernel] {
        self.object.kernels()
    }

    /// Address and bytes of a global variable.
    pub fn global(&self, name: &str) -> Option<(*mut u8, usize)> {
        let global = self.object.globals.iter().find(|global| global.name == name)?;
        Some(((self.base() + global.offset) as *mut u8, global.size as usize))
    }

    /// Address of the image's byte 0.
    pub(crate) fn base(&self) -> u64 {
        self.memory.as_mut_ptr() as u64
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
