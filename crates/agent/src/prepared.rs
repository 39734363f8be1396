//! Lists whose ranges have been checked, and the pieces that a transfer moves.

use crate::AgentError;
use crate::inner::Inner;
use crate::list::{BlockList, Extent};
use crate::memory::LocalMemory;
use crate::path::Route;
use crate::peer::{Peer, PeerMemory};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;

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

/// Looks up the memories that a list names and checks every range; their table and the blocks.
fn resolve<M>(
    list: &BlockList,
    mut find: impl FnMut(u32) -> Result<M, AgentError>,
    extent: impl Fn(&M) -> &Extent,
) -> Result<(Vec<M>, Blocks), AgentError> {
    let mut table: Vec<M> = Vec::new();
    let mut slots = FxHashMap::<u32, u32>::default();
    let single = list.runs().len() == 1;
    let mut each = Vec::with_capacity(if single { 0 } else { list.len() });
    let mut index = 0;
    for run in list.runs() {
        let slot = match slots.get(&run.memory) {
            Some(&slot) => slot,
            None => {
                table.push(find(run.memory)?);
                let slot = table.len() as u32 - 1;
                slots.insert(run.memory, slot);
                slot
            }
        };
        extent(&table[slot as usize]).check(run, index)?;
        index += run.count as usize;
        if !single {
            // The last block is in range, so none of these sums overflows.
            let block = |i| Block { slot, offset: run.offset + run.stride * i, len: run.len };
            each.extend((0..u64::from(run.count)).map(block));
        }
    }
    let blocks = match list.runs() {
        [run] => Blocks::Run {
            offset: run.offset,
            len: run.len,
            stride: run.stride,
            count: run.count as usize,
        },
        _ => Blocks::Each(each),
    };
    Ok((table, blocks))
}

impl Prepared {
    /// Of `agent`'s own memory, or of a peer's.
    pub(crate) fn new(agent: &Inner, list: &BlockList) -> Result<Self, AgentError> {
        let expected = || AgentError::Count {
            what: "a list of blocks",
            found: 0,
            expected: "at least one".into(),
        };
        if list.is_empty() {
            return Err(expected());
        }
        if *list.owner() == agent.owner {
            let (table, blocks) = resolve(list, |id| agent.memory(id), |memory| &memory.extent)?;
            return Ok(Self { blocks, side: Side::Local(table) });
        }
        let peer = agent.peer_of(list.owner())?;
        let (table, blocks) = resolve(list, |id| peer.memory(id), |memory| &memory.extent)?;
        Ok(Self { blocks, side: Side::Remote(peer, table) })
    }

    /// How many blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn owner(&self) -> String {
        match &self.side {
            Side::Local(table) => table[0].extent.owner.to_string(),
            Side::Remote(peer, _) => peer.owner.to_string(),
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prepared({} blocks of {})", self.len(), self.owner())
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
}

/// What a transfer moves.
pub(crate) struct Plan {
    pub(crate) peer: Arc<Peer>,
    pub(crate) parts: Vec<Arc<Part>>,
    pub(crate) bytes: u64,
}

impl Plan {
    /// Of pairs of blocks by index, in order. Neighbours on both sides become one piece.
    pub(crate) fn new(
        agent: &Arc<Inner>,
        (local, local_index): (&Prepared, Select<'_>),
        (remote, remote_index): (&Prepared, Select<'_>),
    ) -> Result<Self, AgentError> {
        let (here, peer, there) = match (&local.side, &remote.side) {
            (Side::Local(here), Side::Remote(peer, there)) => (here, peer, there),
            (Side::Remote(..), _) => return Err(foreign("the local list", local, "this agent")),
            (_, Side::Local(_)) => return Err(foreign("the remote list", remote, "a peer")),
        };
        if here[0].extent.owner != agent.owner {
            return Err(foreign("the local list", local, "this agent"));
        }
        let (count, other) = (local_index.len(local), remote_index.len(remote));
        if count != other || count == 0 {
            let expected = if count == 0 { "at least one".into() } else { count.to_string() };
            return Err(AgentError::Count { what: "the remote side", found: other, expected });
        }
        let parts = Vec::new();
        let mut build = Builder { agent, peer, here, there, count, parts, known: None };
        for index in 0..count {
            let from = local_index.get(local, index, "local")?;
            let to = remote_index.get(remote, index, "remote")?;
            if from.len != to.len {
                return Err(AgentError::Lengths { index, local: from.len, remote: to.len });
            }
            build.push(from, to)?;
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

fn foreign(what: &'static str, list: &Prepared, expected: &str) -> AgentError {
    AgentError::Foreign { what, owner: list.owner(), expected: expected.to_owned() }
}

/// Which blocks of a list.
#[derive(Clone, Copy)]
pub(crate) enum Select<'a> {
    All,
    These(&'a [u32]),
}

impl Select<'_> {
    fn len(&self, list: &Prepared) -> usize {
        match self {
            Self::All => list.len(),
            Self::These(indices) => indices.len(),
        }
    }

    #[inline]
    fn get(&self, list: &Prepared, index: usize, side: &'static str) -> Result<Block, AgentError> {
        let value = match self {
            Self::All => index,
            Self::These(indices) => indices[index] as usize,
        };
        list.blocks.get(value).ok_or_else(|| {
            let (value, blocks) = (value as u32, list.len());
            AgentError::Index { side, index, value, blocks }
        })
    }
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
                self.parts.push(Part { local, remote, route, pieces, bytes: 0 });
                self.parts.len() - 1
            }
        };
        self.known = Some((slots, part));
        Ok(part)
    }
}
