//! Blocks of prepared lists, found by their numbers.

use super::list::Run;

/// A block: which memory, by its place in the list's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub(super) slot: u32,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// A list whose runs have fewer blocks than this, on average, is kept block by block.
const MANY: usize = 4;

pub(crate) enum Blocks {
    Run(Part, usize),
    Runs(Runs),
    Each(Vec<Block>),
}

/// Blocks at equal distances, the first of which has the number `begin`.
pub(crate) struct Part {
    offset: u64,
    len: u64,
    stride: u64,
    slot: u32,
    begin: u32,
}

/// Runs of many blocks. Numbers are divided into buckets of equal size, and of each bucket is known which
/// runs are in it: as a rule one or two, so that finding one takes no longer than in a list of blocks.
pub(crate) struct Runs {
    parts: Vec<Part>,
    /// The number after the last block of each.
    ends: Vec<u32>,
    /// The run of the first block of each bucket, and behind them the last run.
    first: Vec<u32>,
    shift: u32,
}

impl Part {
    fn new(slot: u32, run: &Run, begin: u32) -> Self {
        let &Run { offset, len, stride, .. } = run;
        Self { offset, len, stride, slot, begin }
    }

    /// The block of this number, which is one of them.
    #[inline]
    fn block(&self, number: usize) -> Block {
        let distance = self.stride * (number - self.begin as usize) as u64;
        Block { slot: self.slot, offset: self.offset + distance, len: self.len }
    }
}

impl Blocks {
    /// Of `count` blocks in `runs` runs, whose ranges are checked; each comes with the slot of its memory.
    pub(super) fn new<'a>(
        (count, runs): (usize, usize),
        mut slotted: impl Iterator<Item = (u32, &'a Run)>,
    ) -> Self {
        if runs == 1
            && let Some((slot, run)) = slotted.next()
        {
            return Self::Run(Part::new(slot, run, 0), count);
        }
        if runs.saturating_mul(MANY) <= count {
            return Self::Runs(Runs::new((count, runs), slotted));
        }
        let mut all = Vec::with_capacity(count);
        for (slot, run) in slotted {
            let part = Part::new(slot, run, 0);
            all.extend((0..run.count as usize).map(|number| part.block(number)));
        }
        Self::Each(all)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Run(_, count) => *count,
            Self::Runs(runs) => runs.ends.last().map_or(0, |end| *end as usize),
            Self::Each(blocks) => blocks.len(),
        }
    }

    /// The blocks of these numbers, as many as there are before the first that is beyond the list.
    pub(super) fn gather(&self, numbers: &[u32], into: &mut [Block]) -> usize {
        // The form is looked at once and not for each block.
        match self {
            Self::Run(part, count) => {
                fill(numbers, into, |number| (number < *count).then(|| part.block(number)))
            }
            Self::Runs(runs) => fill(numbers, into, |number| runs.get(number)),
            Self::Each(blocks) => fill(numbers, into, |number| blocks.get(number).copied()),
        }
    }
}

#[inline]
fn fill(numbers: &[u32], into: &mut [Block], get: impl Fn(usize) -> Option<Block>) -> usize {
    for (at, (number, block)) in numbers.iter().zip(&mut *into).enumerate() {
        match get(*number as usize) {
            Some(found) => *block = found,
            None => return at,
        }
    }
    numbers.len().min(into.len())
}

impl Runs {
    fn new<'a>(
        (count, runs): (usize, usize),
        slotted: impl Iterator<Item = (u32, &'a Run)>,
    ) -> Self {
        let (mut parts, mut ends) = (Vec::with_capacity(runs), Vec::with_capacity(runs));
        let mut end = 0;
        for (slot, run) in slotted {
            parts.push(Part::new(slot, run, end));
            end += run.count;
            ends.push(end);
        }
        // About one run in a bucket.
        let shift = (count / runs).ilog2();
        let mut first = Vec::with_capacity((count >> shift) + 2);
        let mut at = 0;
        for bucket in 0..=(count - 1) >> shift {
            let number = (bucket << shift) as u32;
            while ends[at] <= number {
                at += 1;
            }
            first.push(at as u32);
        }
        first.push(parts.len() as u32 - 1);
        Self { parts, ends, first, shift }
    }

    #[inline]
    fn get(&self, number: usize) -> Option<Block> {
        let bucket = number >> self.shift;
        let &[from, to] = self.first.get(bucket..bucket + 2)? else { return None };
        let mut at = from as usize;
        // Runs whose ends are in the bucket.
        if at < to as usize {
            let ends = &self.ends[at..to as usize];
            at += ends.partition_point(|end| *end as usize <= number);
        }
        // Beyond the last block, in the last bucket.
        (number < self.ends[at] as usize).then(|| self.parts[at].block(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(blocks: &Blocks, number: usize) -> Option<Block> {
        let mut into = [Block::default()];
        (blocks.gather(&[number as u32], &mut into) == 1).then_some(into[0])
    }

    fn form(blocks: &Blocks) -> usize {
        match blocks {
            Blocks::Run(..) => 0,
            Blocks::Runs(_) => 1,
            Blocks::Each(_) => 2,
        }
    }

    fn check(runs: &[(u32, Run)]) -> Result<Blocks, TestCaseError> {
        // The model: block after block.
        let mut expected = Vec::new();
        for (slot, run) in runs {
            for number in 0..u64::from(run.count) {
                let offset = run.offset + number * run.stride;
                expected.push(Block { slot: *slot, offset, len: run.len });
            }
        }
        let slotted = runs.iter().map(|(slot, run)| (*slot, run));
        let blocks = Blocks::new((expected.len(), runs.len()), slotted);
        prop_assert_eq!(blocks.len(), expected.len());
        for (number, block) in expected.iter().enumerate() {
            prop_assert_eq!(get(&blocks, number), Some(*block), "number {}", number);
        }
        for beyond in [expected.len(), expected.len() + 1, 2 * expected.len(), u32::MAX as usize] {
            prop_assert_eq!(get(&blocks, beyond), None);
        }
        Ok(blocks)
    }

    fn run(count: u32, offset: u64, len: u64, stride: u64) -> Run {
        Run { memory: 0, count, offset, len, stride }
    }

    proptest! {
        #[test]
        fn every_block_is_found_by_its_number(
            runs in prop::collection::vec((
                0u32..5,
                prop_oneof![1u32..4, 1u32..40, Just(1), Just(1000), Just(64)],
                0u64..1 << 40,
                1u64..100,
                0u64..200,
            ), 1..30),
        ) {
            let made: Vec<_> = runs.iter()
                .map(|&(slot, count, offset, len, stride)| (slot, run(count, offset, len, stride)))
                .collect();
            check(&made)?;
        }
    }

    #[test]
    fn few_runs_of_many_blocks_stay_runs() {
        let of = |runs: &[(u32, u32)]| -> Blocks {
            let run = |&(slot, count): &(u32, u32)| (slot, run(count, u64::from(slot) << 20, 7, 9));
            check(&runs.iter().map(run).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(form(&of(&[(0, 1)])), 0);
        assert_eq!(form(&of(&[(0, 1), (1, 2)])), 2);
        // All alike, one long run before or behind many short ones, and between them.
        assert_eq!(form(&of(&vec![(3, 16384); 64])), 1);
        let short = vec![(1, 1); 100];
        let long = vec![(2, 100_000)];
        for mixed in [
            [&short[..], &long].concat(),
            [&long[..], &short].concat(),
            [&short[..], &long, &short].concat(),
            [&long[..], &short, &long].concat(),
        ] {
            assert_eq!(form(&of(&mixed)), 1);
        }
    }
}
