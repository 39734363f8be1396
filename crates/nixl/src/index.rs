//! Which registered range an address is in.

use crate::{Desc, Error, Kind, MOST_DESCRIPTORS, Status, Strided};
use std::fmt::Display;
use warpverbs_agent::Run;

/// A registered range.
#[derive(Clone, Debug)]
pub(crate) struct Range<T> {
    pub(crate) kind: Kind,
    /// The GPU's ordinal; 0 for host memory.
    pub(crate) dev: u64,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// The agent's number of the registration; newer ones have larger numbers.
    pub(crate) id: u32,
    pub(crate) value: T,
}

impl<T> Range<T> {
    fn space(&self) -> (Kind, u64) {
        (self.kind, self.dev)
    }

    fn end(&self) -> u64 {
        self.addr.saturating_add(self.len)
    }

    /// Whether all of `len` bytes at `addr` are in it.
    fn covers(&self, addr: u64, len: u64) -> bool {
        addr >= self.addr && addr.checked_add(len).is_some_and(|end| end <= self.end())
    }
}

/// The device by which ranges are told apart: programs give host memory any.
pub(crate) fn device(kind: Kind, dev: u64) -> u64 {
    if kind == Kind::Dram { 0 } else { dev }
}

/// Ranges in order of their addresses. They may overlap.
#[derive(Debug)]
pub(crate) struct Index<T> {
    ranges: Vec<Range<T>>,
    /// For each range, where the farthest of it and those before it ends, in the same memory.
    reach: Vec<u64>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { ranges: Vec::new(), reach: Vec::new() }
    }
}

impl<T> Index<T> {
    pub(crate) fn new(mut ranges: Vec<Range<T>>) -> Self {
        ranges.sort_by_key(|range| (range.space(), range.addr, range.id));
        let mut reach = Vec::with_capacity(ranges.len());
        let mut last: Option<((Kind, u64), u64)> = None;
        for range in &ranges {
            let before =
                last.filter(|(space, _)| *space == range.space()).map_or(0, |(_, end)| end);
            let farthest = before.max(range.end());
            reach.push(farthest);
            last = Some((range.space(), farthest));
        }
        Self { ranges, reach }
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The newest range that has all of `len` bytes at `addr`.
    pub(crate) fn find(&self, kind: Kind, dev: u64, addr: u64, len: u64) -> Option<&Range<T>> {
        let space = (kind, device(kind, dev));
        let after = self.ranges.partition_point(|one| (one.space(), one.addr) <= (space, addr));
        let mut found: Option<&Range<T>> = None;
        for at in (0..after).rev() {
            let range = &self.ranges[at];
            if range.space() != space || self.reach[at] <= addr {
                break;
            }
            let is_newer = found.is_none_or(|found| range.id > found.id);
            if is_newer && range.covers(addr, len) {
                found = Some(range);
            }
        }
        found
    }
}

/// Descriptors as runs of blocks inside registered ranges. `owner` has the ranges, for errors.
pub(crate) fn runs<T>(
    index: &Index<T>,
    kind: Kind,
    rows: impl ExactSizeIterator<Item = Strided>,
    owner: &dyn Display,
) -> Result<Vec<Run>, Error> {
    let mut walk = Walk { index, kind, last: None, runs: Vec::new() };
    let count = rows.len();
    for (at, row) in rows.enumerate() {
        walk.row(&row).map_err(|error| {
            let why = format!("descriptor {at} of {count}: {}, {owner}", error.why);
            Error { why, ..error }
        })?;
    }
    Ok(walk.runs)
}

struct Walk<'a, T> {
    index: &'a Index<T>,
    kind: Kind,
    /// As a rule, descriptors that follow one another are of one range.
    last: Option<&'a Range<T>>,
    runs: Vec<Run>,
}

impl<'a, T> Walk<'a, T> {
    /// Blocks of one row may lie in several ranges, each block in one.
    fn row(&mut self, row: &Strided) -> Result<(), Error> {
        let Strided { len, dev, stride, .. } = *row;
        let wrong = |why: String| Error::new(Status::InvalidParam, why);
        if len == 0 || row.count == 0 {
            return Err(wrong(format!(
                "{} blocks of {len} bytes, expected at least 1 of each",
                row.count
            )));
        }
        // Also those on one another, of which any number would fit into a range.
        if row.count > MOST_DESCRIPTORS as u64 {
            return Err(wrong(format!(
                "{} blocks, expected at most {MOST_DESCRIPTORS}",
                row.count
            )));
        }
        let distance = stride.checked_mul(row.count - 1);
        let last = distance.and_then(|distance| row.addr.checked_add(distance));
        if last.and_then(|last| last.checked_add(len)).is_none() {
            let (addr, count) = (row.addr, row.count);
            return Err(wrong(format!(
                "{count} blocks of {len} bytes at {addr:#x}, {stride} apart, end beyond the address space"
            )));
        }
        let (mut addr, mut left) = (row.addr, row.count);
        while left > 0 {
            let range = self.range(&Desc { addr, len, dev })?;
            let room = range.end() - addr - len;
            let fit = room.checked_div(stride).map_or(left, |more| (more + 1).min(left));
            let fit = u32::try_from(fit).unwrap_or(u32::MAX);
            let (memory, offset) = (range.id, addr - range.addr);
            self.push(Run { memory, count: fit, offset, len, stride });
            left -= u64::from(fit);
            // Within the row, whose end was checked, unless nothing is left.
            addr = addr.wrapping_add(stride.wrapping_mul(fit.into()));
        }
        Ok(())
    }

    fn range(&mut self, block: &Desc) -> Result<&'a Range<T>, Error> {
        let Desc { addr, len, dev } = *block;
        let space = (self.kind, device(self.kind, dev));
        if let Some(last) = self.last
            && last.space() == space
            && last.covers(addr, len)
        {
            return Ok(last);
        }
        let found = self.index.find(self.kind, dev, addr, len).ok_or_else(|| {
            let (kind, count) = (self.kind, self.index.len());
            let why = format!(
                "{len} bytes at {addr:#x} of {kind} {dev} are in none of the {count} registered ranges"
            );
            Error::new(Status::NotFound, why)
        })?;
        self.last = Some(found);
        Ok(found)
    }

    /// Adds a run, or continues the last one.
    fn push(&mut self, next: Run) {
        if let Some(last) = self.runs.last_mut()
            && next.count == 1
            && (last.memory, last.len) == (next.memory, next.len)
            && last.count < u32::MAX
        {
            let follows = match last.count {
                1 => next.offset.checked_sub(last.offset),
                count => last
                    .stride
                    .checked_mul(count.into())
                    .and_then(|distance| last.offset.checked_add(distance))
                    .filter(|next_offset| *next_offset == next.offset)
                    .map(|_| last.stride),
            };
            if let Some(stride) = follows {
                last.stride = stride;
                last.count += 1;
                return;
            }
        }
        self.runs.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(kind: Kind, dev: u64, addr: u64, len: u64, id: u32) -> Range<()> {
        Range { kind, dev, addr, len, id, value: () }
    }

    prop_compose! {
        fn any_ranges()(all in prop::collection::vec((0u64..3, 0u64..60, 1u64..30), 0..12)) -> Vec<Range<()>> {
            let kind = |space| if space == 0 { Kind::Dram } else { Kind::Vram };
            let one = |(id, &(space, addr, len)): (usize, &(u64, u64, u64))| {
                range(kind(space), space / 2, addr, len, id as u32)
            };
            all.iter().enumerate().map(one).collect()
        }
    }

    proptest! {
        /// Against a look at each range.
        #[test]
        fn the_newest_range_that_has_all_bytes_is_found(
            ranges in any_ranges(),
            asked in prop::collection::vec((0u64..3, 0u64..90, 1u64..20), 1..30),
        ) {
            let index = Index::new(ranges.clone());
            for (space, addr, len) in asked {
                let (kind, dev) = (if space == 0 { Kind::Dram } else { Kind::Vram }, space / 2);
                let covers = |one: &&Range<()>| {
                    (one.kind, one.dev) == (kind, dev)
                        && (addr..addr + len).all(|at| (one.addr..one.addr + one.len).contains(&at))
                };
                let model = ranges.iter().filter(covers).map(|one| one.id).max();
                let found = index.find(kind, dev, addr, len).map(|one| one.id);
                prop_assert_eq!(found, model);
            }
        }

        /// Every block of the runs is the block that was asked for, in order.
        #[test]
        fn runs_have_the_blocks_of_the_rows(
            ranges in any_ranges(),
            rows in prop::collection::vec((0u64..80, 1u64..9, 0u64..12, 1u64..6), 1..12),
        ) {
            let index = Index::new(ranges.clone());
            let rows: Vec<Strided> = rows
                .into_iter()
                .map(|(addr, len, stride, count)| Strided { addr, len, dev: 7, stride, count })
                .collect();
            let blocks: Vec<(u64, u64)> = rows
                .iter()
                .flat_map(|row| (0..row.count).map(|i| (row.addr + i * row.stride, row.len)))
                .collect();
            let all_covered = blocks.iter().all(|&(addr, len)| index.find(Kind::Dram, 0, addr, len).is_some());
            let found = runs(&index, Kind::Dram, rows.into_iter(), &"of a test");
            prop_assert_eq!(found.is_ok(), all_covered);
            if let Ok(found) = found {
                let start = |id: u32| ranges.iter().find(|one| one.id == id).unwrap();
                let mut got = Vec::new();
                for run in &found {
                    let range = start(run.memory);
                    for i in 0..u64::from(run.count) {
                        let offset = run.offset + i * run.stride;
                        prop_assert!(offset + run.len <= range.len);
                        got.push((range.addr + offset, run.len));
                    }
                }
                prop_assert_eq!(got, blocks);
            }
        }
    }

    #[test]
    fn neighbours_are_one_run() {
        let index = Index::new(vec![range(Kind::Dram, 0, 4096, 1 << 20, 5)]);
        let rows = (0..256).map(|i| Strided::from(Desc { addr: 4096 + i * 64, len: 64, dev: i }));
        let found = runs(&index, Kind::Dram, rows.collect::<Vec<_>>().into_iter(), &"").unwrap();
        assert_eq!(found, [Run { memory: 5, count: 256, offset: 0, len: 64, stride: 64 }]);
    }

    #[test]
    fn a_descriptor_that_is_not_registered_is_named() {
        let index = Index::new(vec![range(Kind::Vram, 1, 0x1000, 16, 0)]);
        let asked = |desc: Desc| {
            runs(&index, Kind::Vram, [Strided::from(desc)].into_iter(), &"of a").unwrap_err()
        };
        let beyond = asked(Desc { addr: 0x1001, len: 16, dev: 1 });
        let text = "NIXL_ERR_NOT_FOUND: descriptor 0 of 1: 16 bytes at 0x1001 of VRAM_SEG 1 are in none \
                    of the 1 registered ranges, of a";
        assert_eq!(beyond.to_string(), text);
        assert_eq!(asked(Desc { addr: 0x1000, len: 16, dev: 0 }).status, Status::NotFound);
        assert_eq!(asked(Desc { addr: 0x1000, len: 0, dev: 1 }).status, Status::InvalidParam);
    }
}
