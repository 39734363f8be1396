//! Lists of blocks: ranges of registered memory, as plain data that may travel.

use crate::AgentError;
use crate::codec::{EncodingError, Format};
use crate::names::Owner;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(crate) const FORMAT: Format = Format { what: "a list of blocks", magic: *b"WVAL", version: 1 };

/// Blocks that a list may have.
pub(crate) const MAX_BLOCKS: usize = 1 << 26;

/// Registered memory as its owner names it.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) owner: Owner,
    pub(crate) id: u32,
    pub(crate) label: Arc<str>,
    pub(crate) len: u64,
}

impl Extent {
    /// The error for memory that has been deregistered.
    pub(crate) fn deregistered(&self) -> AgentError {
        let (owner, label) = (self.owner.to_string(), self.label.to_string());
        AgentError::Deregistered { owner, label }
    }

    /// Checks the last block of a run, which ends farthest.
    pub(crate) fn check(&self, run: &Run, index: usize) -> Result<(), AgentError> {
        let last = run.last();
        let end = last.and_then(|last| last.checked_add(run.len));
        match run.len > 0 && end.is_some_and(|end| end <= self.len) {
            true => Ok(()),
            false => Err(AgentError::Range {
                index,
                offset: last.unwrap_or(u64::MAX),
                len: run.len,
                label: self.label.to_string(),
                owner: self.owner.to_string(),
                size: self.len,
            }),
        }
    }

    pub(crate) fn run(
        &self,
        offset: u64,
        len: u64,
        stride: u64,
        count: usize,
    ) -> Result<BlockList, AgentError> {
        let mut list = BlockList::new(self.owner.clone());
        let blocks = checked_count(count)?;
        let run = Run { memory: self.id, count: blocks, offset, len, stride };
        self.check(&run, 0)?;
        list.push_run(run)?;
        Ok(list)
    }

    pub(crate) fn at(&self, offsets: &[u64], len: u64) -> Result<BlockList, AgentError> {
        checked_count(offsets.len())?;
        let mut list = BlockList::new(self.owner.clone());
        list.runs.reserve(offsets.len());
        for (index, &offset) in offsets.iter().enumerate() {
            let run = Run { memory: self.id, count: 1, offset, len, stride: len };
            self.check(&run, index)?;
            list.push_run(run)?;
        }
        list.runs.shrink_to_fit();
        Ok(list)
    }
}

fn checked_count(count: usize) -> Result<u32, AgentError> {
    match (1..=MAX_BLOCKS).contains(&count) {
        true => Ok(count as u32),
        false => Err(AgentError::Count {
            what: "a list of blocks",
            found: count,
            expected: format!("1 to {MAX_BLOCKS}"),
        }),
    }
}

/// Blocks of one length and equal distances: one descriptor, however many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The owner's number of the registration.
    pub memory: u32,
    /// How many blocks, at least one.
    pub count: u32,
    /// Where the first begins, bytes from the start of the registration.
    pub offset: u64,
    /// Bytes of each block, at least one.
    pub len: u64,
    /// Bytes from the start of a block to the start of the next.
    pub stride: u64,
}

impl Run {
    /// Where the last block begins, unless that is beyond all addresses.
    fn last(&self) -> Option<u64> {
        u64::from(self.count.checked_sub(1)?)
            .checked_mul(self.stride)
            .and_then(|distance| self.offset.checked_add(distance))
    }

    /// Whether it has blocks, none of them empty or beyond all addresses.
    fn is_sound(&self) -> bool {
        self.len > 0 && self.last().and_then(|last| last.checked_add(self.len)).is_some()
    }

    /// Whether `next`, a single block, continues this run; if so, it does.
    fn takes(&mut self, next: &Run) -> bool {
        if next.count != 1 || (next.memory, next.len) != (self.memory, self.len) {
            return false;
        }
        let follows = match self.count {
            1 => next.offset.checked_sub(self.offset),
            _ => Some(self.stride).filter(|_| {
                self.last().and_then(|last| last.checked_add(self.stride)) == Some(next.offset)
            }),
        };
        let Some(stride) = follows.filter(|_| self.count < u32::MAX) else { return false };
        self.stride = stride;
        self.count += 1;
        true
    }
}

/// Blocks of registered memory of one agent, in order. It is plain data: a stale one makes a call
/// fail, nothing worse.
///
/// Blocks of one length and equal distances are one descriptor ([`Run`]), found as they are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockList {
    owner: Owner,
    runs: Vec<Run>,
    blocks: usize,
}

impl BlockList {
    pub(crate) fn new(owner: Owner) -> Self {
        Self { owner, runs: Vec::new(), blocks: 0 }
    }

    fn push_run(&mut self, run: Run) -> Result<(), AgentError> {
        checked_count(self.blocks + run.count as usize)?;
        self.blocks += run.count as usize;
        if !self.runs.last_mut().is_some_and(|last| last.takes(&run)) {
            self.runs.push(run);
        }
        Ok(())
    }

    /// The blocks of these runs, in order, of memory of `owner`. Ranges are checked against the memory when
    /// the list is used. Neighbours that are single blocks at equal distances become one run; others stay
    /// as they are.
    ///
    /// # Errors
    /// There are no blocks or too many; a run has no blocks, an empty one, or ends beyond the address space.
    pub fn of_runs(owner: &Owner, mut runs: Vec<Run>) -> Result<Self, AgentError> {
        let (mut blocks, mut kept) = (0usize, 0);
        for at in 0..runs.len() {
            let run = runs[at];
            if !run.is_sound() {
                return Err(AgentError::Range {
                    index: blocks,
                    offset: run.offset,
                    len: if run.count == 0 { 0 } else { run.len },
                    label: format!("number {}", run.memory),
                    owner: owner.to_string(),
                    size: u64::MAX,
                });
            }
            blocks = blocks.saturating_add(run.count as usize);
            // In place: what is kept never overtakes what is read.
            if kept > 0 && runs[kept - 1].takes(&run) {
                continue;
            }
            runs[kept] = run;
            kept += 1;
        }
        checked_count(blocks)?;
        runs.truncate(kept);
        if runs.len() < runs.capacity() / 2 {
            runs.shrink_to_fit();
        }
        Ok(Self { owner: owner.clone(), runs, blocks })
    }

    /// Adds the blocks of another list, of the same agent.
    ///
    /// # Errors
    /// It is of another agent, or there are too many.
    pub fn append(&mut self, other: &BlockList) -> Result<(), AgentError> {
        if other.owner != self.owner {
            return Err(AgentError::Foreign {
                what: "the list to be added",
                owner: other.owner.to_string(),
                expected: self.owner.to_string(),
            });
        }
        checked_count(self.blocks + other.blocks)?;
        self.runs.reserve(other.runs.len());
        other.runs.iter().try_for_each(|run| self.push_run(*run))
    }

    /// Whose memory it describes.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// How many blocks.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.runs
            .iter()
            .fold(0, |sum: u64, run| sum.saturating_add(run.len.saturating_mul(run.count.into())))
    }

    /// The descriptors.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// As bytes that may travel and be stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Fails only for more than 4 GiB; MAX_BLOCKS runs take less.
        FORMAT.seal(&(&self.owner, &self.runs)).unwrap_or_default()
    }

    /// Reads the bytes of [`BlockList::to_bytes`]. Ranges are checked when the list is used.
    ///
    /// # Errors
    /// Anything else, or a list that no call could have made.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EncodingError> {
        let (owner, runs): (Owner, Vec<Run>) = FORMAT.open(bytes)?;
        let mut list = Self::new(owner);
        for run in &runs {
            if !run.is_sound() {
                return Err(
                    FORMAT.wrong(format!("{run:?} is empty or ends beyond the address space"))
                );
            }
            list.blocks = list.blocks.saturating_add(run.count as usize);
        }
        checked_count(list.blocks).map_err(|error| FORMAT.wrong(error))?;
        Ok(Self { runs, ..list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(len: u64) -> Extent {
        let owner = Owner { name: "a".into(), generation: crate::Generation::of(7, 9) };
        Extent { owner, id: 3, label: "m".into(), len }
    }

    /// Offsets of all blocks, written down one by one.
    fn offsets(list: &BlockList) -> Vec<u64> {
        let block = |run: &Run| {
            let run = *run;
            (0..u64::from(run.count)).map(move |i| run.offset + i * run.stride)
        };
        list.runs().iter().flat_map(block).collect()
    }

    proptest! {
        #[test]
        fn a_list_has_the_blocks_that_were_given(wanted in prop::collection::vec(0u64..50, 1..40)) {
            let list = extent(60).at(&wanted, 10).unwrap();
            prop_assert_eq!(offsets(&list), wanted);
            prop_assert_eq!(BlockList::from_bytes(&list.to_bytes()).unwrap(), list);
        }

        #[test]
        fn ready_runs_make_the_list_that_adding_them_makes(
            wanted in prop::collection::vec((0u32..3, 0u32..4, 0u64..40, 0u64..3, 0u64..9), 0..20),
            far in any::<prop::sample::Index>(),
            edge in prop::option::of(Just(u64::MAX - 20)),
        ) {
            let run = |&(memory, count, offset, len, stride): &(u32, u32, u64, u64, u64)| {
                Run { memory, count, offset, len, stride }
            };
            let mut runs: Vec<Run> = wanted.iter().map(run).collect();
            if let Some(edge) = edge.filter(|_| !runs.is_empty()) {
                let at = far.index(runs.len());
                runs[at].offset = edge;
            }
            // The model: every block written down, in numbers that cannot overflow.
            let one = |run: &Run| {
                let run = *run;
                let at = move |i| u128::from(run.offset) + u128::from(i) * u128::from(run.stride);
                (0..run.count).map(move |i| (run.memory, at(i), u128::from(run.len)))
            };
            let blocks: Vec<_> = runs.iter().flat_map(one).collect();
            let right = !blocks.is_empty()
                && runs.iter().all(|run| run.count > 0 && run.len > 0)
                && blocks.iter().all(|(_, at, len)| at + len <= u128::from(u64::MAX));
            let made = BlockList::of_runs(&extent(1).owner, runs.clone());
            prop_assert_eq!(made.is_ok(), right);
            if let Ok(list) = made {
                let found: Vec<_> = list.runs().iter().flat_map(one).collect();
                prop_assert_eq!(&found, &blocks);
                prop_assert_eq!(list.len(), blocks.len());
                prop_assert!(list.runs().len() <= runs.len());
                prop_assert_eq!(BlockList::from_bytes(&list.to_bytes()).unwrap(), list);
            }
        }

        #[test]
        fn ranges_outside_are_refused(
            offset in prop_oneof![0u64..40, Just(u64::MAX), Just(u64::MAX - 8)],
            len in prop_oneof![0u64..40, Just(u64::MAX)],
            stride in prop_oneof![0u64..40, Just(u64::MAX / 2)],
            count in 0usize..5,
        ) {
            // The model: every byte of every block, in numbers that cannot overflow.
            let ends = (0..count as u128)
                .map(|i| u128::from(offset) + i * u128::from(stride) + u128::from(len));
            let right = count > 0 && len > 0 && ends.max().is_some_and(|end| end <= 64);
            prop_assert_eq!(extent(64).run(offset, len, stride, count).is_ok(), right);
        }

        #[test]
        fn no_bytes_make_a_list_that_overflows(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let runs: Vec<Run> = bytes.chunks(5).map(|b| Run {
                memory: 0,
                count: u32::from(b[0]),
                offset: if b.len() > 1 { u64::MAX - u64::from(b[1]) } else { 0 },
                len: u64::from(*b.get(2).unwrap_or(&1)),
                stride: u64::from(*b.get(3).unwrap_or(&0)),
            }).collect();
            let sealed = FORMAT.seal(&(&extent(1).owner, &runs)).unwrap();
            if let Ok(list) = BlockList::from_bytes(&sealed) {
                prop_assert!(offsets(&list).iter().all(|offset| *offset < u64::MAX));
                prop_assert_eq!(offsets(&list).len(), list.len());
            }
        }
    }

    #[test]
    fn equal_distances_are_one_descriptor() {
        let memory = extent(1 << 30);
        let offsets: Vec<u64> = (0..100_000).map(|i| i * 8192).collect();
        let list = memory.at(&offsets, 4096).unwrap();
        assert_eq!((list.runs().len(), list.len()), (1, 100_000));
        assert_eq!(list, memory.run(0, 4096, 8192, 100_000).unwrap());
        assert!(list.to_bytes().len() < 100, "a descriptor, and not as many as blocks");
        assert_eq!(list.bytes(), 100_000 * 4096);
    }
}
