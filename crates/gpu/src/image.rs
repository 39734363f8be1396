//! A kernel translation unit in every form it may be run in. Values of these types are generated
//! by `warpverbs-kernel-build`; they are not written by hand.

use crate::args::{ArgBytes, Holds, KernelArg};
use crate::{Dim, GpuError};
use core::ffi::c_void;
use warpverbs_layout::NicFormat;

/// One `.cu` file: its source and its host-compiled entries.
#[derive(Debug)]
pub struct Image {
    /// File stem, for messages and for the compile cache.
    pub name: &'static str,
    /// Source with the project's includes expanded; NVRTC is given it with the headers of the device library.
    pub source: &'static str,
    /// Every `__global__` function in the file.
    pub entries: &'static [Entry],
    /// The same file compiled for NICs other than mlx5's, with its functions in the same order.
    pub others: &'static [(NicFormat, Image)],
}

/// One `__global__` function.
#[derive(Debug)]
pub struct Entry {
    /// Its name; declared `extern "C"`, so this is also the symbol in the device image.
    pub name: &'static str,
    /// Size in bytes of each parameter, in order.
    pub params: &'static [usize],
    /// The host-compiled function behind a trampoline that takes an array of pointers to the
    /// parameters, as `cuLaunchKernel` does. Must be called on a SIMT lane.
    pub host: unsafe extern "C" fn(*const *const c_void),
}

/// Parameters of one launch, copied by value, and what their addresses need to stay valid. A
/// device holds this until the kernel has ended, or for ever if it cannot end it.
#[derive(Clone)]
pub struct KernelArgs {
    /// Each parameter starts at a 16-byte boundary.
    blocks: Vec<[u64; 2]>,
    /// First block of each parameter.
    starts: Vec<u16>,
    holds: Holds,
}

impl Default for KernelArgs {
    fn default() -> Self {
        Self { blocks: Vec::new(), starts: Vec::new(), holds: Holds::NONE }
    }
}

impl KernelArgs {
    /// No parameters yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a parameter, and keeps alive what it points to. Panics beyond the 4096 bytes that a
    /// kernel may take; `warpverbs-kernel-build` refuses such a kernel.
    pub fn push<T: KernelArg>(&mut self, value: &T) {
        const MOST: usize = 4096;
        let size = T::SIZE.next_multiple_of(16);
        let (mut small, mut large) = ([0u8; 64], Vec::new());
        let bytes = if size <= small.len() {
            &mut small[..size]
        } else {
            large.resize(size, 0u8);
            &mut large[..]
        };
        value.write(&mut ArgBytes::new(bytes, &mut self.holds), 0);
        self.starts.push(self.blocks.len() as u16);
        let word = |b: &[u8]| u64::from_ne_bytes(b.try_into().unwrap_or_default());
        let blocks = bytes.chunks_exact(16);
        self.blocks.extend(blocks.map(|b| [word(&b[..8]), word(&b[8..])]));
        assert!(self.blocks.len() * 16 <= MOST, "the parameters of a kernel exceed {MOST} bytes");
    }

    /// Pointers to the parameters; valid while `self` is neither moved nor changed.
    pub fn pointers(&self) -> Vec<*const c_void> {
        self.starts.iter().map(|start| self.blocks[usize::from(*start)..].as_ptr().cast()).collect()
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Whether every address is one that this process may use as well.
    pub(crate) fn on_host(&self) -> bool {
        self.holds.on_host
    }

    /// The code that a launch of `kernel` with these arguments runs: compiled for the NIC whose format its queue
    /// pairs have.
    pub(crate) fn compiled(
        &self,
        kernel: &dyn Kernel,
    ) -> Result<(&'static Image, &'static Entry), GpuError> {
        const MLX5: u8 = 1 << NicFormat::Mlx5 as u8;
        let (image, entry, formats) = (kernel.image(), kernel.entry(), self.holds.formats);
        if formats & !MLX5 == 0 {
            return Ok((image, entry));
        }
        let place = image.entries.iter().position(|one| std::ptr::eq(one, entry));
        let other = image.others.iter().find(|(format, _)| 1 << *format as u8 == formats);
        let found = other.zip(place).map(|((_, other), at)| (other, &other.entries[at]));
        found.ok_or_else(|| {
            let name = |(format, _): &(NicFormat, Image)| format!(", {format:?}");
            let others: String = image.others.iter().map(name).collect();
            let all = [NicFormat::Mlx5, NicFormat::Bnxt, NicFormat::Ionic];
            let found = all.into_iter().filter(|format| formats & 1 << *format as u8 != 0);
            GpuError::NicFormat {
                kernel: entry.name,
                found: found.collect(),
                compiled: format!("{:?}{others}", NicFormat::Mlx5),
            }
        })
    }
}

/// A kernel with its arguments: what the generated launchers implement.
///
/// # Safety
/// `args` must yield exactly the parameters of `entry`, in order and size.
pub unsafe trait Kernel {
    /// The translation unit.
    fn image(&self) -> &'static Image;
    /// Which of its functions.
    fn entry(&self) -> &'static Entry;
    /// The parameters.
    fn args(&self) -> KernelArgs;
}

/// A kernel that any thread may launch with any arguments that pass its check: declared with
/// `WV_SAFE_KERNEL`, each pointer with the `WV_COUNT` of elements that the kernel may touch.
///
/// # Safety
/// If [`SafeKernel::check`] succeeds for a shape, a launch of that shape touches only elements
/// behind its pointers, whatever the other arguments and the contents of memory are.
pub unsafe trait SafeKernel: Kernel {
    /// Whether the pointers have the elements that a launch of this shape may touch.
    fn check(&self, dim: Dim) -> Result<(), GpuError>;
}
