//! The heap as kernels see it, in bytes: `kernels/include/warpverbs/heap.h`.

pub use warpverbs_gpu::layout::{
    ALARM_OF_HEAP, FAULT_COMPLETE, Heap, HeapFault, HeapState, MOST_LOG_SLOTS, NO_RANK, NicAddress,
    Peer, Reach, Signal, Window, WindowPeer,
};
use warpverbs_gpu::layout::{
    LINE_PAYLOAD, MailBlock, NARROW_MOST, TeamBlock, WIDE_PAIRS, WIDE_WORDS,
};

/// A narrow line, of a `wv::MailLine`.
const LINE: u64 = 16;

/// Size of a `wv::TeamBlock`: what a team's barriers need at the same offset of every heap, 16-byte
/// aligned and zero before the first call.
pub const TEAM_BLOCK_BYTES: u64 = size_of::<TeamBlock>() as u64;

/// Size of the block of a `wv::Mailbox` for messages of up to `bytes`, `1 << log_slots` of them
/// under way at once: at the same offset of both heaps, 16-byte aligned, zero before the first use.
/// `u64::MAX` for more slots than there are bytes. Kernels take [`MOST_LOG_SLOTS`] and blocks of less
/// than 64 GiB.
pub const fn mail_block_bytes(bytes: u32, log_slots: u8) -> u64 {
    // A message of 0 bytes takes a line as well.
    let narrow = LINE
        * match bytes {
            0 => 1,
            1..NARROW_MOST => bytes.div_ceil(LINE_PAYLOAD),
            _ => NARROW_MOST.div_ceil(LINE_PAYLOAD),
        } as u64;
    let wide = match bytes > NARROW_MOST {
        true => LINE * WIDE_PAIRS as u64 * bytes.div_ceil(8 * WIDE_WORDS) as u64,
        false => 0,
    };
    let slot = if wide > narrow { wide } else { narrow };
    let slots = match 1u64.checked_shl(log_slots as u32) {
        Some(slots) => slots,
        None => u64::MAX,
    };
    slots.saturating_mul(2 * slot).saturating_add(size_of::<MailBlock>() as u64)
}

/// Kernels number lines of a mailbox's block, 16 bytes each, with 32 bits.
pub(crate) const MOST_MAIL_BLOCK: u64 = LINE * (u32::MAX as u64);
