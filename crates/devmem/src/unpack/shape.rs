//! How the kernel is launched.

use warpverbs_gpu::Dim;

/// Shape of a launch. A descriptor names at most 16 KiB, which a warp copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Threads of a block.
    pub threads: u32,
    /// Descriptors that a warp loads at once and copies one after the other, at most 32; chosen by
    /// the size of the batch if absent.
    pub each: Option<u32>,
}

impl Default for Shape {
    fn default() -> Self {
        Self { threads: 256, each: None }
    }
}

/// Descriptors that the lanes of a warp load at once, at most.
const MOST_EACH: u32 = 32;
/// Warps of a multiprocessor that have enough loads in flight to fill the memory, 4 KiB each.
const WARPS: u64 = 12;
/// Descriptors that a warp of a large batch loads at once. Measured on an H200: with more, the last
/// warps are late; with one, the latency of its load is paid too often where copies are unaligned.
const EACH: u64 = 2;

impl Shape {
    /// Descriptors for each warp and the dimensions for `count` descriptors.
    pub(crate) fn launch(self, count: u64, multiprocessors: u32, warp: u32) -> (u32, Dim) {
        let warps = u64::from(multiprocessors.max(1)) * WARPS;
        let chosen = (count / warps).clamp(1, EACH) as u32;
        let each = self.each.unwrap_or(chosen).clamp(1, MOST_EACH);
        let threads = self.threads.max(1);
        let per_block = u64::from(threads.div_ceil(warp.max(1)) * each);
        // The kernel's loop takes what is beyond.
        let blocks = count.div_ceil(per_block).clamp(1, 1 << 20);
        (each, Dim::new(blocks as u32, threads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_batches_load_two_at_once_and_small_ones_use_all_warps() {
        let launch = |count| Shape::default().launch(count, 132, 32);
        assert_eq!(launch(16_384), (2, Dim::new(1024, 256)));
        assert_eq!(launch(100), (1, Dim::new(13, 256)));
        assert_eq!(launch(0), (1, Dim::new(1, 256)));
        assert_eq!(launch(u64::MAX / 2).0, 2);
    }
}
