//! The plan of a transfer: lists whose ranges are checked, and the pieces between two of them. Values
//! alone; nothing here waits, locks or touches memory.

mod blocks;
pub(crate) mod list;

pub(crate) use blocks::Blocks;

use crate::AgentError;
use blocks::Block;
use list::{BlockList, Extent, Run};
use rustc_hash::FxHashMap;

/// Blocks that are looked up at a time: memory is slow where indices jump, and has several requests open if
/// none of them waits for what is done with the others.
const LOT: usize = 32;

/// Pieces for which there is room at once.
const ROOM: usize = 1 << 16;

/// The blocks of a list that was checked, to be found by their numbers.
pub(crate) fn blocks(list: &BlockList, slots: &mut Slots) -> Blocks {
    // Every memory of a checked list has a slot.
    let slotted = list.runs().iter().filter_map(|run| Some((slots.get(run.memory)?, run)));
    Blocks::new((list.len(), list.runs().len()), slotted)
}

/// Which memory of a table a number names.
#[derive(Default)]
pub(crate) struct Slots {
    of: FxHashMap<u32, u32>,
    /// As a rule, runs that follow one another are of one memory.
    last: Option<(u32, u32)>,
}

impl Slots {
    #[inline]
    fn get(&mut self, memory: u32) -> Option<u32> {
        if let Some((known, slot)) = self.last
            && known == memory
        {
            return Some(slot);
        }
        let slot = *self.of.get(&memory)?;
        self.last = Some((memory, slot));
        Some(slot)
    }
}

/// Looks up the memories that a list names and checks every range.
pub(crate) fn resolve<M>(
    list: &BlockList,
    mut find: impl FnMut(u32) -> Result<M, AgentError>,
    extent: impl Fn(&M) -> &Extent,
) -> Result<(Vec<M>, Slots), AgentError> {
    let (mut table, mut slots, mut index) = (Vec::new(), Slots::default(), 0);
    for run in list.runs() {
        let slot = match slots.get(run.memory) {
            Some(slot) => slot,
            None => {
                let slot = table.len() as u32;
                table.push(find(run.memory)?);
                slots.of.insert(run.memory, slot);
                slot
            }
        };
        extent(&table[slot as usize]).check(run, index)?;
        index += run.count as usize;
    }
    Ok((table, slots))
}

/// Blocks in the order in which a transfer takes them.
pub(crate) trait Sequence {
    /// How many.
    fn count(&self) -> usize;
    /// The next ones, from number `base` on; how many there are before an index that is beyond the list.
    fn gather(&mut self, base: usize, into: &mut [Block]) -> usize;
    /// The error for a block number `at` that does not exist.
    fn missing(&self, side: &'static str, at: usize) -> AgentError;
}

/// Blocks of a prepared list, by index.
pub(crate) struct Indexed<'a> {
    pub(crate) blocks: &'a Blocks,
    pub(crate) index: &'a [u32],
}

impl Sequence for Indexed<'_> {
    fn count(&self) -> usize {
        self.index.len()
    }

    fn gather(&mut self, base: usize, into: &mut [Block]) -> usize {
        self.index.get(base..).map_or(0, |numbers| self.blocks.gather(numbers, into))
    }

    fn missing(&self, side: &'static str, at: usize) -> AgentError {
        let value = self.index.get(at).copied().unwrap_or(u32::MAX);
        AgentError::Index { side, index: at, value, blocks: self.blocks.len() }
    }
}

/// All blocks of a checked list.
pub(crate) struct Walk<'a> {
    runs: std::slice::Iter<'a, Run>,
    slots: &'a mut Slots,
    count: usize,
    /// Of the run that has been begun: the next block, and how many are left.
    next: Block,
    stride: u64,
    left: u32,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(list: &'a BlockList, slots: &'a mut Slots) -> Self {
        let (runs, count) = (list.runs().iter(), list.len());
        let next = Block { slot: 0, offset: 0, len: 0 };
        Self { runs, slots, count, next, stride: 0, left: 0 }
    }

    #[inline]
    fn next(&mut self) -> Option<Block> {
        while self.left == 0 {
            let run = self.runs.next()?;
            let slot = self.slots.get(run.memory)?;
            self.next = Block { slot, offset: run.offset, len: run.len };
            (self.stride, self.left) = (run.stride, run.count);
        }
        let block = self.next;
        // The last block is in range; what follows it is not used.
        self.next.offset = block.offset.wrapping_add(self.stride);
        self.left -= 1;
        Some(block)
    }
}

impl Sequence for Walk<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn gather(&mut self, _: usize, into: &mut [Block]) -> usize {
        for (at, block) in into.iter_mut().enumerate() {
            match self.next() {
                Some(next) => *block = next,
                None => return at,
            }
        }
        into.len()
    }

    fn missing(&self, side: &'static str, at: usize) -> AgentError {
        AgentError::Index { side, index: at, value: u32::MAX, blocks: self.count }
    }
}

/// Bytes that are moved in one piece: offsets in the local and in the remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) len: u64,
}

/// The pieces between one local memory and one of the peer, by their places in the lists' tables.
pub(crate) struct Span {
    pub(crate) slots: (u32, u32),
    pub(crate) pieces: Vec<Piece>,
    pub(crate) bytes: u64,
}

impl Span {
    /// Takes pairs of blocks while they are of its memories; how many. The first one is.
    fn extend(&mut self, from: &[Block], to: &[Block]) -> usize {
        // The values that change with each pair stay out of memory.
        let (mut last, mut bytes, mut taken) = (self.pieces.pop(), self.bytes, 0);
        for (from, to) in from.iter().zip(to) {
            if (from.slot, to.slot) != self.slots {
                break;
            }
            taken += 1;
            bytes += from.len;
            match &mut last {
                Some(last)
                    if last.local + last.len == from.offset
                        && last.remote + last.len == to.offset =>
                {
                    last.len += from.len;
                }
                last => {
                    let piece = Piece { local: from.offset, remote: to.offset, len: from.len };
                    self.pieces.extend(last.replace(piece));
                }
            }
        }
        self.pieces.extend(last);
        self.bytes = bytes;
        taken
    }
}

/// The pieces between pairs of blocks, in order. Neighbours on both sides become one piece.
pub(crate) fn spans(
    mut from: impl Sequence,
    mut to: impl Sequence,
) -> Result<Vec<Span>, AgentError> {
    let (count, other) = (from.count(), to.count());
    if count != other || count == 0 {
        let expected = if count == 0 { "at least one".into() } else { count.to_string() };
        return Err(AgentError::Count { what: "the remote side", found: other, expected });
    }
    let mut build = Builder { count, spans: Vec::new(), known: None };
    let (mut here, mut there) = ([Block::default(); LOT], [Block::default(); LOT]);
    for base in (0..count).step_by(LOT) {
        let lot = LOT.min(count - base);
        let found = from.gather(base, &mut here[..lot]);
        let other = to.gather(base, &mut there[..lot]);
        let pairs = found.min(other);
        let (mine, theirs) = (&here[..pairs], &there[..pairs]);
        if let Some(at) = mine.iter().zip(theirs).position(|(here, there)| here.len != there.len) {
            let (local, remote) = (mine[at].len, theirs[at].len);
            return Err(AgentError::Lengths { index: base + at, local, remote });
        }
        build.push(mine, theirs);
        match pairs {
            _ if pairs == lot => {}
            _ if pairs == found => return Err(from.missing("local", base + pairs)),
            _ => return Err(to.missing("remote", base + pairs)),
        }
    }
    for span in &mut build.spans {
        if span.pieces.len() < span.pieces.capacity() / 2 {
            span.pieces.shrink_to_fit();
        }
    }
    Ok(build.spans)
}

struct Builder {
    /// Blocks of all spans.
    count: usize,
    spans: Vec<Span>,
    /// The slots of the last block's memories, and their span.
    known: Option<((u32, u32), usize)>,
}

impl Builder {
    /// Adds pairs of blocks, as many of each.
    fn push(&mut self, mut from: &[Block], mut to: &[Block]) {
        while let (Some(first), Some(second)) = (from.first(), to.first()) {
            let slots = (first.slot, second.slot);
            let at = match self.known {
                Some((known, at)) if known == slots => at,
                _ => self.span(slots),
            };
            let taken = self.spans[at].extend(from, to);
            (from, to) = (&from[taken..], &to[taken..]);
        }
    }

    #[cold]
    fn span(&mut self, slots: (u32, u32)) -> usize {
        let at = self.spans.iter().position(|span| span.slots == slots).unwrap_or_else(|| {
            // As a rule there is one span, and no two pieces are neighbours.
            let room = if self.spans.is_empty() { self.count.min(ROOM) } else { 0 };
            self.spans.push(Span { slots, pieces: Vec::with_capacity(room), bytes: 0 });
            self.spans.len() - 1
        });
        self.known = Some((slots, at));
        at
    }
}
