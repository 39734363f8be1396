//! Lists whose ranges have been checked, and the pieces that a transfer moves.

use crate::AgentError;
use crate::inner::Inner;
use crate::list::{BlockList, Extent, Run};
use crate::memory::LocalMemory;
use crate::path::Route;
use crate::peer::{Peer, PeerMemory};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Pieces for which there is room at once.
const ROOM: usize = 1 << 16;

/// A list that has been checked against the memory that it is of, ready for
/// [`Agent::make`](crate::Agent::make). It may be used any number of times, by any thread.
pub struct Prepared {
    blocks: Blocks,
    side: Side,
}

enum Side {
    Local(Vec<Arc<LocalMemory>>),
    Remote(Arc<Peer>, Vec<Arc<PeerMemory>>),
}

/// A block: which memory, by its place in the list's table.
#[derive(Clone, Copy, Debug)]
struct Block {
    slot: u32,
    offset: u64,
    len: u64,
}

enum Blocks {
    Run { offset: u64, len: u64, stride: u64, count: usize },
    Each(Vec<Block>),
}

impl Blocks {
    fn len(&self) -> usize {
        match self {
            Self::Run { count, .. } => *count,
            Self::Each(blocks) => blocks.len(),
        }
    }

    #[inline]
    fn get(&self, index: usize) -> Option<Block> {
        match self {
            &Self::Run { offset, len, stride, count } => (index < count).then(|| Block {
                slot: 0,
                offset: offset + stride * index as u64,
                len,
            }),
            Self::Each(blocks) => blocks.get(index).copied(),
        }
    }
}

/// Which memory of a table a number names.
#[derive(Default)]
struct Slots {
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
fn resolve<M>(
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

/// Checks a list of `agent`'s own memory, or of a peer's.
fn resolved(agent: &Inner, list: &BlockList) -> Result<(Side, Slots), AgentError> {
    if list.is_empty() {
        let expected = "at least one".into();
        return Err(AgentError::Count { what: "a list of blocks", found: 0, expected });
    }
    if *list.owner() == agent.owner {
        let (table, slots) = resolve(list, |id| agent.memory(id), |memory| &memory.extent)?;
        return Ok((Side::Local(table), slots));
    }
    let peer = agent.peer_of(list.owner())?;
    let (table, slots) = resolve(list, |id| peer.memory(id), |memory| &memory.extent)?;
    Ok((Side::Remote(peer, table), slots))
}

impl Prepared {
    /// Of `agent`'s own memory, or of a peer's.
    pub(crate) fn new(agent: &Inner, list: &BlockList) -> Result<Self, AgentError> {
        let (side, mut slots) = resolved(agent, list)?;
        let blocks = match list.runs() {
            &[Run { offset, len, stride, count, .. }] => {
                Blocks::Run { offset, len, stride, count: count as usize }
            }
            _ => {
                let mut walk = Walk::new(list, &mut slots);
                Blocks::Each((0..list.len()).map_while(|at| walk.block(at)).collect())
            }
        };
        Ok(Self { blocks, side })
    }

    /// How many blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Side {
    fn owner(&self) -> String {
        match self {
            Self::Local(table) => table[0].extent.owner.to_string(),
            Self::Remote(peer, _) => peer.owner.to_string(),
        }
    }
}

/// Blocks in the order in which a transfer takes them.
trait Sequence {
    /// How many.
    fn count(&self) -> usize;
    /// The next one, which is number `at`. None if an index is beyond the list.
    fn block(&mut self, at: usize) -> Option<Block>;
    /// Why there is no block number `at`.
    fn missing(&self, side: &'static str, at: usize) -> AgentError;
}

/// Blocks of a prepared list, by index.
struct Indexed<'a> {
    blocks: &'a Blocks,
    index: &'a [u32],
}

impl Sequence for Indexed<'_> {
    fn count(&self) -> usize {
        self.index.len()
    }

    #[inline]
    fn block(&mut self, at: usize) -> Option<Block> {
        self.blocks.get(*self.index.get(at)? as usize)
    }

    fn missing(&self, side: &'static str, at: usize) -> AgentError {
        let value = self.index.get(at).copied().unwrap_or(u32::MAX);
        AgentError::Index { side, index: at, value, blocks: self.blocks.len() }
    }
}

/// All blocks of a checked list.
struct Walk<'a> {
    runs: std::slice::Iter<'a, Run>,
    slots: &'a mut Slots,
    count: usize,
    /// Of the run that has been begun: the next block, and how many are left.
    next: Block,
    stride: u64,
    left: u32,
}

impl<'a> Walk<'a> {
    fn new(list: &'a BlockList, slots: &'a mut Slots) -> Self {
        let (runs, count) = (list.runs().iter(), list.len());
        let next = Block { slot: 0, offset: 0, len: 0 };
        Self { runs, slots, count, next, stride: 0, left: 0 }
    }
}

impl Sequence for Walk<'_> {
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn block(&mut self, _: usize) -> Option<Block> {
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

    fn missing(&self, side: &'static str, at: usize) -> AgentError {
        AgentError::Index { side, index: at, value: u32::MAX, blocks: self.count }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prepared({} blocks of {})", self.len(), self.side.owner())
    }
}

/// Bytes that are moved in one piece: offsets in the local and in the remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) len: u64,
}

/// The pieces between one local memory and one of the peer.
pub(crate) struct Part {
    pub(crate) local: Arc<LocalMemory>,
    pub(crate) remote: Arc<PeerMemory>,
    pub(crate) route: Arc<Route>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) bytes: u64,
    /// Where kernels copy: the pieces in memory that they read, from the first post on; several lists
    /// if each is copied by a launch of its own. A part is of one transfer, so its operation never
    /// changes.
    pub(crate) lists: Mutex<Vec<warpverbs_gpu::Blocks>>,
}

/// What a transfer moves.
pub(crate) struct Plan {
    pub(crate) peer: Arc<Peer>,
    pub(crate) parts: Vec<Arc<Part>>,
    pub(crate) bytes: u64,
}

impl Plan {
    /// Of pairs of blocks of prepared lists, by index.
    pub(crate) fn of_indices(
        agent: &Arc<Inner>,
        (local, local_index): (&Prepared, &[u32]),
        (remote, remote_index): (&Prepared, &[u32]),
    ) -> Result<Self, AgentError> {
        let here = Indexed { blocks: &local.blocks, index: local_index };
        let there = Indexed { blocks: &remote.blocks, index: remote_index };
        Self::new(agent, (&local.side, here), (&remote.side, there))
    }

    /// Of all blocks of two lists.
    pub(crate) fn of_lists(
        agent: &Arc<Inner>,
        local: &BlockList,
        remote: &BlockList,
    ) -> Result<Self, AgentError> {
        let (here, mut slots_here) = resolved(agent, local)?;
        let (there, mut slots_there) = resolved(agent, remote)?;
        let from = Walk::new(local, &mut slots_here);
        Self::new(agent, (&here, from), (&there, Walk::new(remote, &mut slots_there)))
    }

    /// Of pairs of blocks, in order. Neighbours on both sides become one piece.
    fn new(
        agent: &Arc<Inner>,
        (local, mut from): (&Side, impl Sequence),
        (remote, mut to): (&Side, impl Sequence),
    ) -> Result<Self, AgentError> {
        let (here, peer, there) = match (local, remote) {
            (Side::Local(here), Side::Remote(peer, there)) => (here, peer, there),
            (Side::Remote(..), _) => return Err(foreign("the local list", local, "this agent")),
            (_, Side::Local(_)) => return Err(foreign("the remote list", remote, "a peer")),
        };
        if here[0].extent.owner != agent.owner {
            return Err(foreign("the local list", local, "this agent"));
        }
        let (count, other) = (from.count(), to.count());
        if count != other || count == 0 {
            let expected = if count == 0 { "at least one".into() } else { count.to_string() };
            return Err(AgentError::Count { what: "the remote side", found: other, expected });
        }
        let parts = Vec::new();
        let mut build = Builder { agent, peer, here, there, count, parts, known: None };
        for index in 0..count {
            let Some(here) = from.block(index) else { return Err(from.missing("local", index)) };
            let Some(there) = to.block(index) else { return Err(to.missing("remote", index)) };
            if here.len != there.len {
                return Err(AgentError::Lengths { index, local: here.len, remote: there.len });
            }
            build.push(here, there)?;
        }
        let bytes = build.parts.iter().map(|part| part.bytes).sum();
        let fit = |mut part: Part| {
            if part.pieces.len() < part.pieces.capacity() / 2 {
                part.pieces.shrink_to_fit();
            }
            Arc::new(part)
        };
        let parts = build.parts.into_iter().map(fit).collect();
        Ok(Self { peer: peer.clone(), parts, bytes })
    }

    /// Pieces of all parts.
    pub(crate) fn pieces(&self) -> usize {
        self.parts.iter().map(|part| part.pieces.len()).sum()
    }
}

fn foreign(what: &'static str, list: &Side, expected: &str) -> AgentError {
    AgentError::Foreign { what, owner: list.owner(), expected: expected.to_owned() }
}

struct Builder<'a> {
    agent: &'a Arc<Inner>,
    peer: &'a Arc<Peer>,
    here: &'a [Arc<LocalMemory>],
    there: &'a [Arc<PeerMemory>],
    /// Blocks of all parts.
    count: usize,
    parts: Vec<Part>,
    /// The slots of the last block's memories, and their part.
    known: Option<((u32, u32), usize)>,
}

impl Builder<'_> {
    #[inline]
    fn push(&mut self, from: Block, to: Block) -> Result<(), AgentError> {
        let slots = (from.slot, to.slot);
        let part = match self.known {
            Some((known, part)) if known == slots => part,
            _ => self.part(slots)?,
        };
        let part = &mut self.parts[part];
        part.bytes += from.len;
        let piece = Piece { local: from.offset, remote: to.offset, len: from.len };
        match part.pieces.last_mut() {
            Some(last)
                if last.local + last.len == piece.local
                    && last.remote + last.len == piece.remote =>
            {
                last.len += piece.len;
            }
            _ => part.pieces.push(piece),
        }
        Ok(())
    }

    #[cold]
    fn part(&mut self, slots: (u32, u32)) -> Result<usize, AgentError> {
        let (local, remote) = (&self.here[slots.0 as usize], &self.there[slots.1 as usize]);
        let same =
            |part: &Part| Arc::ptr_eq(&part.local, local) && Arc::ptr_eq(&part.remote, remote);
        let part = match self.parts.iter().position(same) {
            Some(part) => part,
            None => {
                let route = self.agent.route(local, self.peer, remote)?;
                let (local, remote) = (local.clone(), remote.clone());
                // As a rule there is one part, and no two pieces are neighbours.
                let room = if self.parts.is_empty() { self.count.min(ROOM) } else { 0 };
                let pieces = Vec::with_capacity(room);
                let lists = Mutex::default();
                self.parts.push(Part { local, remote, route, pieces, bytes: 0, lists });
                self.parts.len() - 1
            }
        };
        self.known = Some((slots, part));
        Ok(part)
    }
}
