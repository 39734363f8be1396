//! The heap as kernels see it, in bytes: `kernels/include/warpverbs/heap.h`.

pub use warpverbs_gpu::layout::{
    Heap, HeapFault, HeapState, NicAddress, Peer, Reach, Signal, Window, WindowPeer,
};

/// Index behind [`Heap::alarms`] of the word that ends every wait on the heap once it is not 0. The
/// word `1 + rank` ends every wait for this rank alone.
pub const ALARM_OF_HEAP: usize = 0;

/// In [`HeapFault::peer`]: no rank in particular.
pub const NO_RANK: u32 = u32::MAX;

/// Size of a `wv::TeamBlock`: what a team's barriers need at the same offset of every heap, 16-byte
/// aligned and zero before the first call.
pub const TEAM_BLOCK_BYTES: u64 = 656;

/// Size of the block of a `wv::Mailbox` for messages of up to `bytes`, `1 << log_slots` of them
/// under way at once: at the same offset of both heaps, 16-byte aligned, zero before the first use.
/// `u64::MAX` for more slots than there are bytes. Kernels take [`MOST_LOG_SLOTS`] and blocks of less
/// than 64 GiB.
pub const fn mail_block_bytes(bytes: u32, log_slots: u8) -> u64 {
    /// Bytes of the longest message in narrow lines.
    const NARROW_MOST: u64 = 4096;
    let bytes = bytes as u64;
    // A message of 0 bytes takes a line as well.
    let narrow = match bytes {
        0 => 16,
        1..NARROW_MOST => 16 * bytes.div_ceil(8),
        _ => 16 * NARROW_MOST.div_ceil(8),
    };
    let wide = if bytes > NARROW_MOST { 512 * bytes.div_ceil(504) } else { 0 };
    let slot = if wide > narrow { wide } else { narrow };
    let slots = match 1u64.checked_shl(log_slots as u32) {
        Some(slots) => slots,
        None => u64::MAX,
    };
    slots.saturating_mul(2 * slot).saturating_add(128)
}

/// The most that `Mailbox::log_slots` may be.
pub const MOST_LOG_SLOTS: u8 = 16;
/// Kernels number lines of a mailbox's block, 16 bytes each, with 32 bits.
pub(crate) const MOST_MAIL_BLOCK: u64 = 16 * (u32::MAX as u64);
