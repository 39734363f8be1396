//! Memory that the device does not reach: host memory is registered in its place, and the memory's
//! copy engine moves bytes between the two, before a request is posted and after it is done.

use crate::engine::transfer::{Fault, Source, Transfer, begin, lane};
use crate::proxy_device::{InTable, OwnMemory};
use crate::violation::{KeySide, Rule};
use rustc_hash::FxHashMap;
use warpverbs_mem::{Access, Region, Span};
use warpverbs_rdma::{Lkey, Sge};

/// The host memory in place of each region that the device does not reach, by its lkey.
#[derive(Debug, Default)]
pub(crate) struct Shadows(FxHashMap<u32, Shadow>);

#[derive(Debug)]
struct Shadow {
    memory: Region,
    device_key: Lkey,
}

impl Shadows {
    pub(crate) fn insert(&mut self, key: u32, memory: &Region, device_key: u32) {
        let device_key = Lkey(device_key);
        self.0.insert(key, Shadow { memory: memory.clone(), device_key });
    }

    /// The memory is to be dropped without a lock held.
    pub(crate) fn remove(&mut self, key: u32) -> Option<Region> {
        self.0.remove(&key).map(|shadow| shadow.memory)
    }

    pub(crate) fn contains(&self, key: u32) -> bool {
        self.0.contains_key(&key)
    }
}

/// A segment in memory that the device does not reach, and what is in its place.
#[derive(Debug)]
struct Piece {
    own: Region,
    shadow: Region,
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

    /// Starts the copies from user memory into the bounce buffer.
    pub(super) fn gather(&self) -> Copies {
        let ends = self.0.iter().map(|piece| (&piece.own, &piece.shadow, piece.own.len() as u64));
        Copies::start(ends)
    }

    /// Starts the copies of the first `len` bytes that arrived from the bounce buffer to user memory.
    pub(super) fn bring_back(&self, len: u64) -> Copies {
        let arrived = self.0.iter().filter(|piece| piece.at < len);
        Copies::start(
            arrived.map(|piece| {
                (&piece.shadow, &piece.own, (len - piece.at).min(piece.own.len() as u64))
            }),
        )
    }
}

/// Copies that were started, or why they were not.
#[derive(Debug)]
pub(super) struct Copies(Result<Option<Transfer>, Fault>);

impl Copies {
    /// There is nothing to copy.
    pub(super) const NONE: Self = Self(Ok(None));

    fn start<'a>(ends: impl Iterator<Item = (&'a Region, &'a Region, u64)>) -> Self {
        let (mut from, mut to, mut all) = (Vec::new(), Vec::new(), 0);
        for (source, target, len) in ends {
            let span = |region| Span { region, offset: 0, len: len as u32, proxy_lkey: None };
            from.push(span(source));
            to.push(span(target));
            all += len;
        }
        if all == 0 {
            return Self::NONE;
        }
        let from = Source::Spans(&from);
        Self(begin(from, &to, all, u64::MAX, lane(from, &to)).map_err(Fault::from))
    }

    /// Whether all bytes are in place. Never blocks. An error comes when nothing is under way any
    /// more, and again at every call.
    pub(super) fn landed(&mut self) -> Result<bool, Fault> {
        match &mut self.0 {
            Ok(None) => Ok(true),
            Ok(Some(transfer)) => match transfer.advance(u64::MAX, None) {
                Ok(false) => Ok(false),
                Ok(true) => {
                    self.0 = Ok(None);
                    Ok(true)
                }
                Err(error) => {
                    self.0 = Err(error.clone());
                    Err(error)
                }
            },
            Err(error) => Err(error.clone()),
        }
    }

    /// Dropping it waits for nothing.
    pub(super) fn are_over(&mut self) -> bool {
        !matches!(self.landed(), Ok(false))
    }
}

/// The own side's memory, shadows included. Collects the pieces that are to be copied.
pub(super) struct WithShadows<'a> {
    pub(super) table: InTable<'a>,
    pub(super) shadows: &'a Shadows,
    pub(super) pieces: Pieces,
    /// Bytes of the segments so far.
    at: u64,
}

impl<'a> WithShadows<'a> {
    pub(super) fn new(table: InTable<'a>, shadows: &'a Shadows) -> Self {
        Self { table, shadows, pieces: Pieces::default(), at: 0 }
    }
}

impl OwnMemory for WithShadows<'_> {
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
                self.in_shadow(sge, at, needed).ok_or(rule)
            }
            other => other,
        }
    }
}

impl WithShadows<'_> {
    /// A segment that is in order but for the device, if it has a shadow.
    #[cold]
    fn in_shadow(&mut self, sge: Sge, at: u64, needed: Access) -> Option<Sge> {
        let InTable { keys, hint, pd } = &mut self.table;
        let Shadow { memory, device_key } = self.shadows.0.get(&sge.lkey.0)?;
        let span = keys.find(hint, *pd, sge.lkey.0, sge.addr, sge.len, needed)?;
        let shadow = memory.slice(span.offset, sge.len as usize).ok()?;
        let found = Sge { addr: shadow.addr(), len: sge.len, lkey: *device_key };
        self.pieces.0.push(Piece { own: span.to_region().ok()?, shadow, at });
        Some(found)
    }
}
