//! Memory that the device does not reach: host memory is registered in its place, and the memory's
//! copy engine moves bytes between the two, before a request is posted and after it is done.

use crate::engine::copies::{CopyQueue, Source};
use crate::proxy_device::{InTable, OwnMemory};
use crate::violation::{KeySide, Rule};
use rustc_hash::FxHashMap;
use warpverbs_mem::{Access, Region, Span};
use warpverbs_rdma::{Lkey, Sge};

/// The host memory in place of each region that the device does not reach, by its lkey.
#[derive(Debug, Default)]
pub(crate) struct BounceBuffers(FxHashMap<u32, BounceBuffer>);

#[derive(Debug)]
struct BounceBuffer {
    memory: Region,
    device_key: Lkey,
}

impl BounceBuffers {
    pub(crate) fn insert(&mut self, key: u32, memory: &Region, device_key: u32) {
        let device_key = Lkey(device_key);
        self.0.insert(key, BounceBuffer { memory: memory.clone(), device_key });
    }

    /// The memory is to be dropped without a lock held.
    pub(crate) fn remove(&mut self, key: u32) -> Option<Region> {
        self.0.remove(&key).map(|bounce_buffer| bounce_buffer.memory)
    }

    pub(crate) fn contains(&self, key: u32) -> bool {
        self.0.contains_key(&key)
    }
}

/// A segment in memory that the device does not reach, and what is in its place.
#[derive(Debug)]
struct Piece {
    own: Region,
    bounce_buffer: Region,
    /// Bytes of the message before it.
    at: u64,
}

/// Such segments of one WQE or receive.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Piece>);

impl Pieces {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts the copies from user memory into the bounce buffer: the number behind them, 0 if
    /// there are none.
    pub(super) fn gather(&self, copies: &mut CopyQueue<()>) -> u64 {
        let sides = self.0.iter().map(|piece| (&piece.own, &piece.bounce_buffer, u64::MAX));
        start(copies, sides)
    }

    /// Starts the copies of the first `len` bytes that arrived from the bounce buffer to user
    /// memory: the number behind them, 0 if there are none.
    pub(super) fn bring_back(&self, len: u64, copies: &mut CopyQueue<()>) -> u64 {
        let arrived = self.0.iter().filter(|piece| piece.at < len);
        start(copies, arrived.map(|piece| (&piece.bounce_buffer, &piece.own, len - piece.at)))
    }
}

/// Starts copies from region to region, each of a number of bytes at most.
fn start<'a>(
    copies: &mut CopyQueue<()>,
    sides: impl Iterator<Item = (&'a Region, &'a Region, u64)>,
) -> u64 {
    let span = |region: &'a Region, most: u64| {
        let len = most.min(region.len() as u64) as u32;
        Span { region, offset: 0, len, proxy_lkey: None }
    };
    let (from, to): (Vec<_>, Vec<_>) =
        sides.map(|(from, to, most)| (span(from, most), span(to, most))).unzip();
    if from.is_empty() {
        return 0;
    }
    let upto = copies.push_all(Source::Spans(&from), &to, &[vec![], vec![]], ());
    copies.start(None, u64::MAX, false);
    upto
}

/// The own side's memory, bounce buffers included. Collects the pieces that are to be copied.
pub(super) struct WithBounceBuffers<'a> {
    pub(super) table: InTable<'a>,
    pub(super) bounce_buffers: &'a BounceBuffers,
    pub(super) pieces: Pieces,
    /// Bytes of the segments before the next one.
    at: u64,
}

impl<'a> WithBounceBuffers<'a> {
    pub(super) fn new(table: InTable<'a>, bounce_buffers: &'a BounceBuffers) -> Self {
        Self { table, bounce_buffers, pieces: Pieces::default(), at: 0 }
    }
}

impl OwnMemory for WithBounceBuffers<'_> {
    #[inline]
    fn at_device(
        &mut self,
        side: KeySide,
        segment: u8,
        sge: Sge,
        needed: Access,
    ) -> Result<Sge, Box<Rule>> {
        let at = self.at;
        self.at += u64::from(sge.len);
        match self.table.at_device(side, segment, sge, needed) {
            Err(rule) if matches!(*rule, Rule::KeyNotProxied { .. }) => {
                self.bounced(sge, at, needed).ok_or(rule)
            }
            other => other,
        }
    }
}

impl WithBounceBuffers<'_> {
    /// A segment that is in order but for the device, if it has a bounce buffer.
    #[cold]
    fn bounced(&mut self, sge: Sge, at: u64, needed: Access) -> Option<Sge> {
        let InTable { keys, hint, pd } = &mut self.table;
        let BounceBuffer { memory, device_key } = self.bounce_buffers.0.get(&sge.lkey.0)?;
        let span = keys.find(hint, *pd, sge.lkey.0, sge.addr, sge.len, needed)?;
        let bounce_buffer = memory.slice(span.offset, sge.len as usize).ok()?;
        let found = Sge { addr: bounce_buffer.addr(), len: sge.len, lkey: *device_key };
        self.pieces.0.push(Piece { own: span.to_region().ok()?, bounce_buffer, at });
        Some(found)
    }
}
