//! The device: memory that kernels reach, modules with an address, launches.
use crate::error::{LaunchError, LoadError, RangeError};
use crate::grid;
use crate::inst::Inst;
use crate::memory::{Ranges, Registration, Rights};
use crate::metadata::Hidden;
use crate::object::{CodeObject, Kernel};
use crate::{decode, error::DecodeError};
use memmap2::{MmapMut, MmapRaw};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// How the device behaves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of the order in which waves run: the same seed and the same memory give the same order.
    pub seed: u64,
    /// Waves that run at the same time at most; groups beyond wait for others to end, and a group always fits.
    pub waves: usize,
}

impl Default for Config {
    /// As many waves as 16 compute units hold.
    fn default() -> Config {
        Config { seed: 1, waves: 512 }
    }
}

/// An emulated GPU. Addresses of the process are its addresses: what is registered is reached as it is.
#[derive(Debug)]
pub struct Device {
    pub(crate) ranges: Arc<Ranges>,
    pub(crate) config: Config,
}

/// Ends launches that hold it, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Launches with this handle end with [`LaunchError::Stopped`], also those that have not begun.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// One run of a kernel.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel's name in the module.
    pub kernel: &'a str,
    /// Groups along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a group along x, y and z.
    pub block: [u32; 3],
    /// Bytes of LDS of each group beside what the kernel declares.
    pub dynamic_lds: u32,
    /// The caller's arguments, packed as [`Kernel::arguments`] says: [`Kernel::explicit_size`] bytes or more.
    /// What the runtime appends is filled in here.
    pub arguments: &'a [u8],
    /// When it ends at the latest.
    pub deadline: Instant,
    /// Ends it before.
    pub stop: Stop,
}

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
        Some(cell.get_or_init(|| decode::decode(&self.object.code().1[offset as usize..])))
    }
}

impl Device {
    /// A device without memory.
    pub fn new(config: Config) -> Device {
        Device { ranges: Arc::default(), config }
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
    ) -> Result<Registration, RangeError> {
        // SAFETY: the caller promises it.
        unsafe { self.ranges.add(start, length, rights) }
    }

    /// Gives a code object an address.
    ///
    /// # Errors
    /// [`LoadError::Image`] where there is no memory for it.
    pub fn load(&self, object: &CodeObject) -> Result<Module, LoadError> {
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
        let registration = unsafe { self.register(memory.as_mut_ptr(), length, Rights::ReadWrite) };
        let registration = registration.map_err(|error| no_memory(&error))?;
        let words = (object.code.end - object.code.start) as usize / 4;
        let instructions = (0..words).map(|_| OnceLock::new()).collect();
        Ok(Module { object: object.clone(), memory, _registration: registration, instructions })
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
        let mut memory = MmapMut::map_anon(PACKET as usize + kernel.kernarg_size as usize)
            .map_err(|error| wrong(format!("no memory for its arguments: {error}")))?;
        let packet = memory.as_ptr() as u64;
        fill_packet(&mut memory, kernel, module.base(), launch);
        fill_arguments(&mut memory[PACKET as usize..], kernel, launch);
        let memory = MmapRaw::from(memory);
        // SAFETY: the registration is dropped before the mapping, to whose bytes there is no reference.
        let registration =
            unsafe { self.register(memory.as_mut_ptr(), memory.len(), Rights::Read) };
        let registration = registration.map_err(|error| wrong(error.to_string()))?;
        let result = grid::run(self, module, kernel, launch, packet);
        drop(registration);
        result
    }
}

/// Bytes of the dispatch packet; arguments follow it.
pub(crate) const PACKET: u64 = 64;

fn check(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    let (grid, block) = (launch.grid, launch.block);
    let product =
        |sizes: [u32; 3]| sizes.iter().try_fold(1_u32, |all, &size| all.checked_mul(size));
    let threads = product(block).filter(|&threads| threads > 0 && threads <= kernel.block_at_most);
    if threads.is_none() || product(grid).is_none_or(|groups| groups == 0) {
        return Err(format!(
            "{grid:?} groups of {block:?} threads; expected 1 to 2^32 - 1 of 1 to {} threads",
            kernel.block_at_most
        ));
    }
    if grid.iter().zip(block).any(|(&groups, threads)| groups.checked_mul(threads).is_none()) {
        return Err(format!(
            "{grid:?} groups of {block:?} threads are 2^32 threads or more along an axis"
        ));
    }
    if launch.arguments.len() < kernel.explicit_size as usize {
        return Err(format!(
            "{} bytes of arguments; expected {}",
            launch.arguments.len(),
            kernel.explicit_size
        ));
    }
    match kernel.lds.checked_add(launch.dynamic_lds) {
        Some(lds) if lds <= 1 << 16 => Ok(()),
        _ => Err(format!(
            "{} and {} bytes of LDS; expected 65536 at most",
            kernel.lds, launch.dynamic_lds
        )),
    }
}

/// The packet of HSA's queues, as far as kernels read it.
fn fill_packet(memory: &mut [u8], kernel: &Kernel, base: u64, launch: &Launch<'_>) {
    let mut put = |at: usize, value: &[u8]| memory[at..][..value.len()].copy_from_slice(value);
    for axis in 0..3 {
        put(4 + 2 * axis, &(launch.block[axis] as u16).to_le_bytes());
        put(12 + 4 * axis, &(launch.grid[axis] * launch.block[axis]).to_le_bytes());
    }
    put(24, &kernel.scratch.to_le_bytes());
    put(28, &(kernel.lds + launch.dynamic_lds).to_le_bytes());
    put(32, &(base + kernel.descriptor).to_le_bytes());
}

fn fill_arguments(memory: &mut [u8], kernel: &Kernel, launch: &Launch<'_>) {
    let explicit = kernel.explicit_size as usize;
    memory[..explicit].copy_from_slice(&launch.arguments[..explicit]);
    for &(offset, size, kind) in &kernel.hidden {
        let value: u64 = match kind {
            Hidden::Groups(axis) => launch.grid[axis].into(),
            Hidden::GroupSize(axis) => launch.block[axis].into(),
            Hidden::Dimensions => {
                3 - launch
                    .grid
                    .iter()
                    .rev()
                    .zip(launch.block.iter().rev())
                    .take_while(|sizes| *sizes == (&1, &1))
                    .count()
                    .min(2) as u64
            }
            Hidden::DynamicLds => launch.dynamic_lds.into(),
            Hidden::SharedBase => crate::wave::SHARED_BASE >> 32,
            Hidden::PrivateBase => crate::wave::PRIVATE_BASE >> 32,
            Hidden::Remainder(_) | Hidden::Zero => 0,
        };
        let size = size.min(8) as usize;
        memory[offset as usize..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
}
