//! Ranges of regions that were checked.

use crate::{MemError, Region};
use std::num::NonZeroU32;

/// A checked range: `len` bytes at `offset` of `region`.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The memory.
    pub region: &'a Region,
    /// First byte, from the start of `region`.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The key under which a proxy device has the same memory, if it has.
    pub proxy_lkey: Option<NonZeroU32>,
}

/// Writes bytes to pieces of host memory, in order. Bytes that the pieces do not hold are handed
/// back.
#[inline]
pub fn scatter<'b>(to: &[Span<'_>], bytes: &'b [u8]) -> Result<&'b [u8], MemError> {
    let mut rest = bytes;
    for span in to {
        let (now, later) = rest.split_at(rest.len().min(span.len as usize));
        span.region.write(span.offset, now)?;
        rest = later;
    }
    Ok(rest)
}
