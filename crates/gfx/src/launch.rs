//! A launch: what is run, and the packet and arguments that its kernel finds.
use crate::object::Kernel;
use crate::target::Target;
use crate::wave::{PRIVATE_BASE, SHARED_BASE};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How the device behaves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The processor. Code objects for others are refused.
    pub target: Target,
    /// Of the order in which waves run: the same seed, launches and memory give the same order.
    pub seed: u64,
    /// Waves that run at the same time at most; groups beyond wait for others to end, and a group always fits.
    pub waves: usize,
    /// Whether accesses of memory complete as late, and in as odd an order, as the GPU lets them, and go through caches
    /// that only instructions and chance keep coherent: a missing wait, write-back or invalidation shows.
    pub lazy: bool,
}

impl Default for Config {
    /// As many waves as 16 compute units hold.
    fn default() -> Config {
        Config { target: Target::default(), seed: 1, waves: 512, lazy: false }
    }
}

/// Ends launches that hold it, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Launches with this handle end with [`LaunchError::Unfinished`](crate::LaunchError::Unfinished), also those that have not begun.
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
    /// The caller's arguments, packed as the kernel's metadata says: `explicit_size` bytes or more.
    /// The launch fills in the arguments that the runtime appends.
    pub arguments: &'a [u8],
    /// The launch fails if it has not ended by then.
    pub deadline: Instant,
    /// Ends it early.
    pub stop: Stop,
}

/// Bytes of the dispatch packet; arguments follow it.
pub(crate) const PACKET: u64 = 64;

pub(crate) fn check(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    let (grid, block, kernel) = (launch.grid, launch.block, &kernel.metadata);
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
    if launch.arguments.len() < kernel.explicit_size() as usize {
        return Err(format!(
            "{} bytes of arguments; expected {}",
            launch.arguments.len(),
            kernel.explicit_size()
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

/// Writes the packet of HSA's queues, as far as kernels read it, and behind it the arguments: the caller's, and those that the
/// run time appends, which are 0 but for these.
pub(crate) fn fill(memory: &mut [u8], kernel: &Kernel, base: u64, launch: &Launch<'_>) {
    let (grid, block, note) = (launch.grid, launch.block, &kernel.metadata);
    let mut put = |at: usize, value: &[u8]| memory[at..][..value.len()].copy_from_slice(value);
    for axis in 0..3 {
        put(4 + 2 * axis, &(block[axis] as u16).to_le_bytes());
        put(12 + 4 * axis, &(grid[axis] * block[axis]).to_le_bytes());
    }
    put(24, &note.scratch.to_le_bytes());
    put(28, &(note.lds + launch.dynamic_lds).to_le_bytes());
    put(32, &(base + kernel.descriptor).to_le_bytes());
    put(PACKET as usize, &launch.arguments[..note.explicit_size() as usize]);
    let flat = (1..3).rev().take_while(|&axis| (grid[axis], block[axis]) == (1, 1)).count();
    for argument in &note.arguments {
        let Some(kind) = argument.hidden() else { continue };
        let axis = |prefix| kind.strip_prefix(prefix).and_then(|axis| "xyz".find(axis));
        let value: u64 = match (axis("block_count_"), axis("group_size_"), kind) {
            (Some(axis), ..) => grid[axis].into(),
            (_, Some(axis), _) => block[axis].into(),
            (.., "grid_dims") => 3 - flat as u64,
            (.., "dynamic_lds_size") => launch.dynamic_lds.into(),
            (.., "shared_base") => SHARED_BASE >> 32,
            (.., "private_base") => PRIVATE_BASE >> 32,
            _ => 0,
        };
        let size = argument.size.min(8) as usize;
        put(PACKET as usize + argument.offset as usize, &value.to_le_bytes()[..size]);
    }
}
