//! Modules and launches.

use crate::code::{Answer, Code, exports};
use crate::handles::Handles;
use crate::state::{CONCURRENT, LDS, THREADS, lock, state, target};
use crate::stream::enqueue;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use warpverbs_gfx::{CodeObject, Launch, Metadata, Module, Stop};

/// Kernels end by their own deadlines; this is for those that have none.
const LONGEST: Duration = Duration::from_secs(3600);

/// A kernel of a module.
#[derive(Clone)]
struct Function {
    module: Arc<Module>,
    name: String,
}

impl Function {
    fn kernel(&self) -> Answer<&Metadata> {
        self.module.kernel(&self.name).map(|kernel| &kernel.metadata).ok_or(Code::NotFound)
    }
}

// Neither is ever removed: the library above unloads nothing.
static MODULES: Handles<Arc<Module>> = Handles::new();
static FUNCTIONS: Handles<Function> = Handles::new();

fn function(handle: *mut c_void) -> Answer<Function> {
    FUNCTIONS.with(handle, Function::clone).ok_or(Code::InvalidHandle)
}

/// The length of an ELF file that a pointer begins: up to the end of the table of sections, which linkers put last.
///
/// # Safety
/// A whole ELF file, or at least 64 bytes of something else.
unsafe fn elf<'a>(image: *const c_void) -> Answer<&'a [u8]> {
    let image = image.cast::<u8>();
    // SAFETY: the caller's obligation.
    let header = unsafe { std::slice::from_raw_parts(image, 64) };
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(Code::InvalidImage);
    }
    let table = u64::from_le_bytes(header[40..48].try_into().unwrap_or_default());
    let of = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let len = usize::try_from(table).ok().and_then(|table| table.checked_add(of(58) * of(60)));
    // SAFETY: the file is whole (the caller's obligation), so its table of sections is in it.
    Ok(unsafe { std::slice::from_raw_parts(image, len.ok_or(Code::InvalidImage)?) })
}

/// A device's room for waves, of which each launch has a part until it has ended: a kernel that finds none waits,
/// as behind others that fill a GPU. One that needs more than all has all.
struct Room {
    used: Mutex<usize>,
    freed: Condvar,
}

static ROOM: Room = Room { used: Mutex::new(0), freed: Condvar::new() };

impl Room {
    /// Runs a kernel of so many waves when they have room.
    fn with<R>(&self, waves: usize, run: impl FnOnce() -> R) -> R {
        let mine = waves.min(CONCURRENT);
        let full = |used: &mut usize| *used + mine > CONCURRENT;
        let waited = self.freed.wait_while(lock(&self.used), full);
        *waited.unwrap_or_else(PoisonError::into_inner) += mine;
        let result = run();
        *lock(&self.used) -= mine;
        self.freed.notify_all();
        result
    }
}

/// The arguments as a kernel reads them.
///
/// # Safety
/// As many pointers as the kernel has arguments, each to as many bytes as the argument has.
unsafe fn pack(kernel: &Metadata, params: *mut *mut c_void) -> Vec<u8> {
    let mut packed = vec![0; kernel.explicit_size() as usize];
    for (index, argument) in kernel.explicit().enumerate() {
        let to = &mut packed[argument.offset as usize..][..argument.size as usize];
        // SAFETY: one of the pointers (the caller's obligation).
        let from = unsafe { params.wrapping_add(index).read() };
        // SAFETY: that many bytes (the caller's obligation).
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }
    packed
}

exports! {
    /// Of HIP's kinds of images, an ELF file.
    fn hipModuleLoadData(image: *const c_void) -> *mut c_void {
        state().alive()?;
        // SAFETY: the caller's image.
        let bytes = unsafe { elf(image) }?;
        let said = |error: &dyn std::error::Error| {
            eprintln!("emulated {}: {error}", target());
            Code::InvalidImage
        };
        let object = CodeObject::parse(bytes).map_err(|error| said(&error))?;
        let module = state().gfx.load(&object).map_err(|error| said(&error))?;
        Ok(MODULES.add(Arc::new(module)))
    }

    fn hipModuleGetFunction(module: *mut c_void, name: *const c_char) -> *mut c_void {
        let module = MODULES.with(module, Arc::clone).ok_or(Code::InvalidHandle)?;
        // SAFETY: the caller's text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let function = Function { module, name };
        function.kernel()?;
        Ok(FUNCTIONS.add(function))
    }

    fn hipFuncGetAttribute(attribute: c_int, handle: *mut c_void) -> c_int {
        // The largest block.
        let known = if attribute == 0 { function(handle) } else { Err(Code::InvalidValue) };
        Ok(known?.kernel()?.block_at_most as c_int)
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        handle: *mut c_void,
        threads: c_int,
        shared: usize,
    ) -> c_int {
        let waves = u32::try_from(threads).map_err(|_| Code::InvalidValue)?.div_ceil(64).max(1);
        let lds = function(handle)?.kernel()?.lds as usize + shared;
        let by_lds = (LDS as usize).checked_div(lds).unwrap_or(usize::MAX);
        Ok((THREADS / 64 / waves).min(u32::try_from(by_lds).unwrap_or(u32::MAX)) as c_int)
    }

    #[allow(clippy::too_many_arguments, reason = "HIP's function")]
    fn hipModuleLaunchKernel(
        handle: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_lds: c_uint,
        stream: *mut c_void,
        params: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
        let function = function(handle)?;
        let kernel = function.kernel()?;
        let threads = block_x.checked_mul(block_y).and_then(|xy| xy.checked_mul(block_z));
        let known = threads.filter(|&threads| threads != 0 && threads <= kernel.block_at_most);
        let threads = known.ok_or(Code::InvalidValue)?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let blocks = grid.iter().fold(1usize, |all, &size| all.saturating_mul(size as usize));
        let waves = blocks.saturating_mul(threads.div_ceil(64) as usize);
        // SAFETY: the caller's parameters.
        let arguments = unsafe { pack(kernel, params) };
        enqueue(stream, move || {
            let launch = Launch {
                kernel: &function.name,
                grid,
                block,
                dynamic_lds,
                arguments: &arguments,
                deadline: Instant::now() + LONGEST,
                stop: Stop::default(),
            };
            let ended = ROOM.with(waves, || state().gfx.launch(&function.module, &launch));
            if let Err(error) = ended {
                eprintln!("{error}");
                state().lose();
            }
        })
    }
}
