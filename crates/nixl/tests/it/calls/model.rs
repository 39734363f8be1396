//! The right outcome of each call of a script: a model of two agents' registrations, of what each knows of the
//! other, of lists, transfers, notifications and bytes. It is written from the interface, not from the code.

use std::cell::Cell;
use std::rc::Rc;
use warpverbs_nixl::{Op, Strided};

/// Bytes of each agent's memory.
pub(crate) const ARENA: u64 = 4096;
/// Blocks that a list may have.
const MOST_BLOCKS: u128 = 1 << 26;

/// The right outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Works,
    Fails,
    /// Either is right, by the moment at which something is noticed.
    Open,
}

impl Verdict {
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fails, _) | (_, Self::Fails) => Self::Fails,
            (Self::Works, Self::Works) => Self::Works,
            _ => Self::Open,
        }
    }

    /// Panics if a call did what it must not.
    pub(crate) fn judge<T: std::fmt::Debug, E: std::fmt::Display>(
        self,
        call: &dyn std::fmt::Debug,
        result: &Result<T, E>,
    ) {
        match (self, result) {
            (Self::Works, Err(error)) => panic!("{call:?} must work: {error}"),
            (Self::Fails, Ok(made)) => panic!("{call:?} must fail, made {made:?}"),
            (_, Err(error)) => assert!(error.to_string().len() > 12, "{call:?}: no cause: {error}"),
            _ => {}
        }
    }
}

pub(crate) fn if_so(so: bool) -> Verdict {
    if so { Verdict::Works } else { Verdict::Fails }
}

/// A registration, for as long as it is one.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    /// Offset in the arena.
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) alive: Rc<Cell<bool>>,
}

impl Range {
    fn covers(&self, at: u64, len: u64) -> bool {
        at >= self.at && at + len <= self.at + self.len
    }
}

/// A block of a list, and the registrations that had all of it when it was looked up: it is in one of them.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) at: u64,
    pub(crate) len: u64,
    ranges: Vec<Range>,
}

/// A list that was prepared, or may have been.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) blocks: Vec<Block>,
    /// Of the other agent's memory, and which time it was known then.
    pub(crate) peer: Option<u32>,
    /// Whether it is known in which registrations its blocks are.
    pub(crate) sure: bool,
}

/// A transfer that was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) op: Op,
    pub(crate) pairs: Vec<(Block, Block)>,
    pub(crate) peer: Option<u32>,
    pub(crate) sure: bool,
}

/// One agent.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// Oldest first.
    pub(crate) ranges: Vec<Range>,
    /// The other's registrations, as its metadata said, if they are loaded.
    pub(crate) known: Option<Vec<Range>>,
    /// How often the other has been forgotten.
    pub(crate) times: u32,
    /// Notifications that wait here: whose, and which.
    pub(crate) notes: Vec<(bool, Vec<u8>)>,
    /// Whether these are all; otherwise some more may.
    pub(crate) all_notes: bool,
    /// Its memory, as far as it is known.
    pub(crate) bytes: Vec<Option<u8>>,
}

/// Blocks of rows as offsets in the arena at `base`; `None` if there are none or too many, or one is empty or elsewhere.
fn offsets(rows: &[Strided], base: u64) -> Option<Vec<(u64, u64)>> {
    let count: u128 = rows.iter().map(|row| u128::from(row.count)).sum();
    if count == 0 || count > MOST_BLOCKS {
        return None;
    }
    let mut all = Vec::new();
    for row in rows {
        if row.count == 0 || row.len == 0 {
            return None;
        }
        for i in 0..u128::from(row.count) {
            let at = u128::from(row.addr) + i * u128::from(row.stride);
            let at = at.checked_sub(base.into())?;
            if at + u128::from(row.len) > ARENA.into() {
                return None;
            }
            all.push((at as u64, row.len));
        }
    }
    Some(all)
}

/// The right outcome of looking rows up in registrations, and the list if it may work.
fn look(ranges: &[Range], rows: &[Strided], base: u64) -> (Verdict, Vec<Block>) {
    let Some(all) = offsets(rows, base) else { return (Verdict::Fails, Vec::new()) };
    let (mut verdict, mut blocks) = (Verdict::Works, Vec::new());
    for (at, len) in all {
        let covering: Vec<_> = ranges.iter().filter(|one| one.covers(at, len)).cloned().collect();
        if covering.is_empty() {
            return (Verdict::Fails, Vec::new());
        }
        if covering.iter().any(|one| !one.alive.get()) {
            verdict = Verdict::Open;
        }
        blocks.push(Block { at, len, ranges: covering });
    }
    (verdict, blocks)
}

impl Side {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let bytes = bytes.iter().map(|byte| Some(*byte)).collect();
        Self { bytes, all_notes: true, ..Self::default() }
    }

    /// Looks rows of host memory up: of this agent, or of the other, whose memory is at `base`.
    pub(crate) fn listed(&self, peer: bool, rows: &[Strided], base: u64) -> (Verdict, Listed) {
        let of = match peer {
            false => Some(&self.ranges),
            true => self.known.as_ref(),
        };
        let Some(ranges) = of else {
            let nothing = Listed { blocks: Vec::new(), peer: Some(self.times), sure: false };
            return (Verdict::Fails, nothing);
        };
        let (verdict, blocks) = look(ranges, rows, base);
        let peer = peer.then_some(self.times);
        (verdict, Listed { blocks, peer, sure: verdict == Verdict::Works })
    }

    /// Takes the newest registrations of these ranges out; all or none.
    pub(crate) fn deregister(&mut self, wanted: &[(u64, u64)]) -> Verdict {
        let mut left = self.ranges.clone();
        for (at, len) in wanted {
            let found = left.iter().rposition(|one| (one.at, one.len) == (*at, *len));
            let Some(found) = found else { return Verdict::Fails };
            left.remove(found);
        }
        let stays = |one: &Range| left.iter().any(|other| Rc::ptr_eq(&other.alive, &one.alive));
        self.ranges.iter().filter(|one| !stays(one)).for_each(|one| one.alive.set(false));
        self.ranges = left;
        Verdict::Works
    }

    /// The newest registrations of these ranges, if all are registered.
    pub(crate) fn named(&self, wanted: &[(u64, u64)]) -> Option<Vec<Range>> {
        let newest = |(at, len): &(u64, u64)| {
            self.ranges.iter().rfind(|one| (one.at, one.len) == (*at, *len)).cloned()
        };
        wanted.iter().map(newest).collect()
    }

    /// The other's metadata, all or a part.
    pub(crate) fn learn(&mut self, ranges: Vec<Range>, all: bool) {
        match &mut self.known {
            Some(known) if !all => {
                let new = |one: &Range| !known.iter().any(|old| Rc::ptr_eq(&old.alive, &one.alive));
                let new: Vec<_> = ranges.into_iter().filter(new).collect();
                known.extend(new);
            }
            known => *known = Some(ranges),
        }
    }

    pub(crate) fn forget(&mut self) -> Verdict {
        let known = self.known.take().is_some();
        self.times += u32::from(known);
        if_so(known)
    }

    /// Whether blocks of these lists can be moved, by pairs.
    pub(crate) fn made(
        &self,
        op: Op,
        local: &Listed,
        remote: &Listed,
        pairs: &[(u32, u32)],
    ) -> (Verdict, Made) {
        let pick = |of: &Listed, at: u32| of.blocks.get(at as usize).cloned();
        let both = |(here, there): &(u32, u32)| Some((pick(local, *here)?, pick(remote, *there)?));
        let found: Option<Vec<_>> = pairs.iter().map(both).collect();
        let fits = |pairs: &Vec<(Block, Block)>| {
            !pairs.is_empty() && pairs.iter().all(|(here, there)| here.len == there.len)
        };
        let found = found.filter(fits);
        // The initiator's side must be its own.
        let sound = if_so(found.is_some() && local.peer.is_none());
        let made = Made {
            op,
            pairs: found.unwrap_or_default(),
            peer: remote.peer,
            sure: local.sure && remote.sure,
        };
        let open = if made.sure && self.ends(&made) == Verdict::Works {
            Verdict::Works
        } else {
            Verdict::Open
        };
        (sound.and(open), made)
    }

    /// The right outcome of a post that is waited for.
    pub(crate) fn ends(&self, made: &Made) -> Verdict {
        let gone = made.peer.is_some_and(|times| self.known.is_none() || times != self.times);
        let blocks = || made.pairs.iter().flat_map(|(here, there)| [here, there]);
        let dead = |one: &Range| !one.alive.get();
        if gone || (made.sure && blocks().any(|block| block.ranges.iter().all(dead))) {
            return Verdict::Fails;
        }
        let whole = || blocks().all(|block| !block.ranges.iter().any(dead));
        if made.sure && whole() { Verdict::Works } else { Verdict::Open }
    }
}

/// Moves the bytes of a transfer that is done, of the agent `who`. Where blocks overlap, or where it is not known whether
/// it was done, what it wrote is not known either.
pub(crate) fn moved(sides: &mut [Side; 2], who: usize, made: &Made, done: bool) {
    let other = if made.peer.is_some() { 1 - who } else { who };
    let ends = |(here, there): &(Block, Block)| {
        let (here, there) = ((who, here.at, here.len), (other, there.at, there.len));
        match made.op {
            Op::Read => (there, here),
            Op::Write => (here, there),
        }
    };
    let all: Vec<_> = made.pairs.iter().map(ends).collect();
    let meet = |a: (usize, u64, u64), b: (usize, u64, u64)| {
        a.0 == b.0 && a.1 < b.1 + b.2 && b.1 < a.1 + a.2
    };
    let overlaps = all.iter().enumerate().any(|(i, (_, to))| {
        let others = all.iter().enumerate();
        others.into_iter().any(|(j, (from, into))| meet(*to, *from) || (i != j && meet(*to, *into)))
    });
    for ((from, at, len), (to, into, _)) in all {
        for i in 0..len {
            let byte = sides[from].bytes[(at + i) as usize];
            let known = done && !overlaps;
            sides[to].bytes[(into + i) as usize] = if known { byte } else { None };
        }
    }
}
