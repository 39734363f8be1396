//! Places that messages are received to, by turns, and what each holds in the end.

use super::mesh::{fill, seed, wrong_bytes};
use super::rank::Rank;
use anyhow::{Result, ensure};
use warpverbs::gpu::KernelPtr;
use warpverbs::transport::MemoryRegion;

/// Receives that are offered at a time, at least and at most.
pub(crate) const WINDOWS: (u64, u64) = (2, 64);
/// Bytes of the places that a queue pair receives to, unless its messages are larger.
const ROOM: u64 = 4 << 20;

/// Receives that are offered at a time for messages of one size.
pub(crate) fn window(size: u64) -> u64 {
    (ROOM / size).clamp(WINDOWS.0, WINDOWS.1)
}

/// Fills what is sent, one message more than there are places, and the places with something else.
pub(crate) fn prepare(
    rank: &Rank<'_>,
    source: &MemoryRegion,
    inboxes: &[MemoryRegion],
    row: usize,
    size: u64,
) -> Result<()> {
    for slot in 0..=window(size) {
        let at = KernelPtr::at(source.buffer(), slot * size, usize::try_from(size)?)?;
        fill(rank.session, at, size, message(rank.number(), row, slot))?;
    }
    for inbox in inboxes {
        let (at, all) = (KernelPtr::new(inbox.buffer()), window(size) * size);
        fill(rank.session, at, all, !message(rank.number(), row, 0))?;
    }
    Ok(())
}

/// Every place holds the last of `messages` of `peer` that went there.
pub(crate) fn verify(
    rank: &Rank<'_>,
    (peer, inbox): (u32, &MemoryRegion),
    row: usize,
    size: u64,
    messages: u32,
) -> Result<()> {
    let (window, messages) = (window(size), u64::from(messages));
    for number in messages.saturating_sub(window)..messages {
        let place = number % window * size;
        let at = KernelPtr::at(inbox.buffer(), place, usize::try_from(size)?)?;
        let sent = message(peer, row, number % (window + 1));
        let wrong = wrong_bytes(rank.session, at, size, sent)?;
        ensure!(
            wrong == 0,
            "{wrong} of {size} bytes of message {number} from rank {peer} are wrong"
        );
    }
    Ok(())
}

/// Seed of one of the messages that a rank sends by turns.
fn message(rank: u32, row: usize, slot: u64) -> u32 {
    seed(rank, row * (WINDOWS.1 as usize + 1) + slot as usize)
}

/// Bytes of as many messages of any of `sizes` as have places, and of `more`.
pub(crate) fn room(sizes: &[u64], more: u64) -> u64 {
    sizes.iter().map(|size| (window(*size) + more) * size).max().unwrap_or(0)
}
