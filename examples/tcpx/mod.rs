//! How a receiver moves payload that landed in pinned memory into a buffer of the device.

use crate::common;
use anyhow::Result;
use std::sync::Arc;
use warpverbs::devmem::unpack::{Move, Moves, Place as At, UnpackConfig, Unpacker, Way};
use warpverbs::gpu::{Buffer, Gpu};

/// A device-memory receive delivers pages.
const PAGE: u64 = 4096;

/// Moves the payload into the buffer, and says which way it took.
pub(crate) fn unpack(
    gpu: &Arc<dyn Gpu>,
    way: Way,
    landing: Buffer,
    buffer: &Buffer,
) -> Result<Way> {
    let mut unpacker = Unpacker::new(gpu.clone(), UnpackConfig { way, ..UnpackConfig::default() });
    let len = buffer.len() as u64;
    let (from, to) = (unpacker.add(landing), unpacker.add(buffer.clone()));
    // Pages in the order of a NIC that fills its buffers from both ends: no two are neighbours.
    let pages = len.div_ceil(PAGE);
    let order = (0..pages.div_ceil(2)).flat_map(|n| [n, pages - 1 - n]);
    let mut moves = Moves::new();
    for page in order.take(pages as usize) {
        let (offset, len) = (page * PAGE, PAGE.min(len - page * PAGE));
        let at = |area| At { area, offset };
        moves.push(Move { from: at(from), to: at(to), len });
    }
    let way = unpacker.way_for(moves.as_slice())?;
    let ticket = unpacker.submit(moves.as_slice())?;
    unpacker.wait(ticket, common::DEADLINE)?;
    Ok(way)
}
