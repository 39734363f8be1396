//! The caches between waves and memory, for launches that are [lazy](crate::Config::lazy): an L1 and a scalar cache
//! in each compute unit, an L2 in each XCD. They hold what their sizes, other waves and chance leave there, so that
//! an access sees old bytes wherever the GPU lets it. The rules of both targets are in docs/hip.md, "Lazy mode".
use crate::error::Access;
use crate::inst::Coherence;
use crate::memory::{Checked, Range, Ranges, View};
use crate::target::Target;
use indexmap::IndexMap;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Bytes of a line.
const LINE: u64 = 64;
/// Compute units, fewer than there are: groups that share one, or an XCD, are as likely as those that do not.
const UNITS: usize = 4;
/// gfx90a has one L2, which all compute units share.
const XCDS: usize = 2;
/// Lines that a cache holds at most.
const LINES: usize = 1024;

#[derive(Clone, Copy)]
struct Line {
    bytes: [u8; LINE as usize],
    /// A bit for each byte.
    valid: u64,
    dirty: u64,
    /// Another XCD has changed these bytes in memory.
    stale: bool,
}

/// By registration and address, so that memory which is registered anew shares nothing with what was there.
type Cache = IndexMap<(u64, u64), Line>;

pub(crate) struct Caches {
    l1: [Cache; UNITS],
    scalar: [Cache; UNITS],
    l2: [Cache; XCDS],
    /// Of which the target has so many.
    xcds: usize,
    random: SmallRng,
    /// Of so many turns, and so many instructions, one has something happen that might have happened later.
    pace: u32,
    /// Instructions of one turn at most.
    pub(crate) turn: u32,
}

fn key(range: &Range, address: u64) -> (u64, u64) {
    (range.id, address & !(LINE - 1))
}

fn mask(address: u64, length: u64) -> u64 {
    u64::MAX >> (LINE - length) << (address % LINE)
}

impl Line {
    const EMPTY: Line = Line { bytes: [0; LINE as usize], valid: 0, dirty: 0, stale: false };

    fn get(&self, address: u64, length: u64) -> u64 {
        let mut bytes = [0; 8];
        let at = (address % LINE) as usize;
        bytes[..length as usize].copy_from_slice(&self.bytes[at..at + length as usize]);
        u64::from_le_bytes(bytes)
    }

    fn put(&mut self, address: u64, length: u64, value: u64) {
        let at = (address % LINE) as usize;
        self.bytes[at..at + length as usize]
            .copy_from_slice(&value.to_le_bytes()[..length as usize]);
        self.valid |= mask(address, length);
    }

    /// Bytes that it lacks come from `other`.
    fn take(&mut self, other: &Line) {
        for byte in 0..LINE as usize {
            if self.valid >> byte & 1 == 0 {
                self.bytes[byte] = other.bytes[byte];
            }
        }
        self.valid |= other.valid;
    }

    /// Bytes that it lacks come from memory, as far as the range has them.
    fn fill(&mut self, view: &View<'_>, range: &Range, line: u64) {
        let mut found = Line::EMPTY;
        let mut at = line.max(range.start);
        let end = (line + LINE).min(range.end);
        while at < end {
            let length = if at.is_multiple_of(8) && end - at >= 8 { 8 } else { 1 };
            if let Ok(value) = view.load(at, length) {
                found.put(at, length, value);
            }
            at += length;
        }
        self.take(&found);
    }

    /// Dirty bytes go to memory, unless that is no longer what it was.
    fn write_back(&mut self, view: &View<'_>, (id, line): (u64, u64)) {
        let (mut at, end) = (line, line + LINE);
        while at < end {
            let is_dirty = |bits: u64| self.dirty & bits == bits;
            let whole = |length: &u64| at.is_multiple_of(*length) && is_dirty(mask(at, *length));
            let length = [8, 4, 1].into_iter().find(whole);
            if let Some(length) = length
                && view.range(at, length, Access::Store).is_ok_and(|range| range.id == id)
            {
                let _ = view.store(at, length, self.get(at, length));
            }
            at += length.unwrap_or(1);
        }
        self.dirty = 0;
    }
}

impl Caches {
    pub(crate) fn new(seed: u64, target: Target) -> Caches {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut one_of = |these: [u32; 3]| these[random.random_range(0..these.len())];
        let (pace, turn) = (one_of([1, 8, 64]), one_of([2, 8, 64]));
        let (l1, scalar, l2) = Default::default();
        let xcds = if target == Target::Gfx90a { 1 } else { XCDS };
        Caches { l1, scalar, l2, xcds, random, pace, turn }
    }

    /// The compute unit of a group that begins.
    pub(crate) fn unit(&mut self) -> usize {
        self.random.random_range(0..UNITS)
    }

    /// One of `count`, if there are any.
    pub(crate) fn any(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.random.random_range(0..count))
    }

    fn xcd(&self, unit: usize) -> usize {
        unit % self.xcds
    }

    fn chance(&mut self) -> bool {
        self.random.random_ratio(1, self.pace)
    }

    fn changed(&mut self, xcd: usize, key: (u64, u64)) {
        for (_, l2) in self.l2.iter_mut().enumerate().filter(|(other, _)| *other != xcd) {
            if let Some(line) = l2.get_mut(&key) {
                line.stale = true;
            }
        }
    }

    /// The line's dirty bytes go to memory, and it leaves the L2.
    fn evict(&mut self, view: &View<'_>, xcd: usize, key: (u64, u64)) {
        if let Some(mut line) = self.l2[xcd].swap_remove(&key).filter(|line| line.dirty != 0) {
            line.write_back(view, key);
            self.changed(xcd, key);
        }
    }

    /// Something leaves a cache.
    fn evict_any(&mut self, view: &View<'_>) {
        let random = self.random.random_range(0..usize::MAX);
        let (unit, which) = (random % UNITS, random / (3 * UNITS));
        let nth = |cache: &Cache| which % cache.len().max(1);
        match random / UNITS % 3 {
            0 => _ = self.l1[unit].swap_remove_index(nth(&self.l1[unit])),
            1 => _ = self.scalar[unit].swap_remove_index(nth(&self.scalar[unit])),
            _ => {
                let xcd = self.xcd(unit);
                if let Some((&key, _)) = self.l2[xcd].get_index(nth(&self.l2[xcd])) {
                    self.evict(view, xcd, key);
                }
            }
        }
    }

    fn write_back(&mut self, view: &View<'_>, xcd: usize) {
        let dirty = self.l2[xcd].iter().filter(|(_, line)| line.dirty != 0);
        let dirty: Vec<_> = dirty.map(|(key, _)| *key).collect();
        for key in dirty {
            if let Some(line) = self.l2[xcd].get_mut(&key) {
                line.write_back(view, key);
            }
            self.changed(xcd, key);
        }
    }

    fn invalidate(&mut self, unit: usize) {
        self.l1[unit].clear();
        let xcd = self.xcd(unit);
        self.l2[xcd].retain(|_, line| {
            if std::mem::take(&mut line.stale) {
                line.valid = line.dirty;
            }
            line.valid != 0
        });
    }

    /// The kernel has ended: all that was written is in memory.
    pub(crate) fn flush(&mut self, view: &View<'_>) {
        (0..XCDS).for_each(|xcd| self.write_back(view, xcd));
    }
}

/// Memory as a wave reaches it: at once, or through caches.
pub(crate) struct Port<'a> {
    view: View<'a>,
    /// And the wave's compute unit.
    caches: Option<(&'a mut Caches, usize)>,
}

/// How far an access goes: into caches, or past them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Vector,
    Scalar,
    /// Past the L1.
    L2,
    Memory,
}

impl<'a> Port<'a> {
    pub(crate) fn new(ranges: &'a Ranges, caches: Option<(&'a mut Caches, usize)>) -> Port<'a> {
        Port { view: ranges.view(), caches }
    }

    /// Whether accesses complete some time after they were issued.
    pub(crate) fn late(&self) -> bool {
        self.caches.is_some()
    }

    /// Whether one that may complete now does.
    pub(crate) fn chance(&mut self) -> Option<&mut SmallRng> {
        let (caches, _) = self.caches.as_mut()?;
        caches.chance().then_some(&mut caches.random)
    }

    /// 1, 2, 4 or 8 bytes; where the address is no multiple of that, each byte is an access.
    pub(crate) fn load(&mut self, address: u64, length: u64, reach: Reach) -> Checked<u64> {
        if address & (length - 1) != 0 {
            let mut byte = |at| self.load(address.wrapping_add(at), 1, reach);
            return (0..length).try_fold(0, |all, at| Ok(all | byte(at)? << (8 * at)));
        }
        let Some((caches, unit)) = &mut self.caches else { return self.view.load(address, length) };
        let range = self.view.range(address, length, Access::Load)?;
        let (key, xcd) = (key(&range, address), caches.xcd(*unit));
        if matches!(reach, Reach::L2 | Reach::Memory) {
            caches.l1[*unit].swap_remove(&key);
        }
        if reach == Reach::Memory {
            caches.evict(&self.view, xcd, key);
            return self.view.load(address, length);
        }
        let scalar = reach == Reach::Scalar;
        let first = if scalar { &mut caches.scalar[*unit] } else { &mut caches.l1[*unit] };
        let line = first.entry(key).or_insert(Line::EMPTY);
        if mask(address, length) & !line.valid != 0 {
            if range.cached {
                let behind = caches.l2[xcd].entry(key).or_insert(Line::EMPTY);
                behind.fill(&self.view, &range, key.1);
                line.take(behind);
            } else {
                line.fill(&self.view, &range, key.1);
            }
        }
        let value = line.get(address, length);
        if first.len() > LINES || caches.l2[xcd].len() > LINES {
            caches.evict_any(&self.view);
        }
        Ok(value)
    }

    /// As `load`.
    pub(crate) fn store(
        &mut self,
        address: u64,
        length: u64,
        value: u64,
        reach: Reach,
    ) -> Checked<()> {
        if address & (length - 1) != 0 {
            let byte = |at| self.store(address.wrapping_add(at), 1, value >> (8 * at), reach);
            return (0..length).try_for_each(byte);
        }
        if reach == Reach::Memory {
            self.pass(address, length, Access::Store)?;
        } else if let Some((caches, unit)) = &mut self.caches {
            let range = self.view.range(address, length, Access::Store)?;
            let (key, xcd) = (key(&range, address), caches.xcd(*unit));
            if let Some(line) = caches.l1[*unit].get_mut(&key) {
                line.put(address, length, value);
            }
            if range.cached {
                let line = caches.l2[xcd].entry(key).or_insert(Line::EMPTY);
                line.put(address, length, value);
                line.dirty |= mask(address, length);
                if caches.l2[xcd].len() > LINES {
                    caches.evict_any(&self.view);
                }
                return Ok(());
            }
        }
        self.view.store(address, length, value)
    }

    pub(crate) fn update(
        &mut self,
        address: u64,
        length: u64,
        f: impl Fn(u64) -> u64,
    ) -> Checked<u64> {
        self.pass(address, length, Access::Atomic)?;
        self.view.update(address, length, f)
    }

    /// Before a change in memory: the line leaves the wave's own caches, and the copies of others are old.
    fn pass(&mut self, address: u64, length: u64, access: Access) -> Checked<()> {
        let Some((caches, unit)) = &mut self.caches else { return Ok(()) };
        let range = self.view.range(address, length, access)?;
        let (key, xcd) = (key(&range, address), caches.xcd(*unit));
        caches.l1[*unit].swap_remove(&key);
        caches.evict(&self.view, xcd, key);
        caches.changed(xcd, key);
        Ok(())
    }

    /// Does what an instruction on caches does.
    pub(crate) fn apply(&mut self, instruction: Coherence) {
        let Some((caches, unit)) = &mut self.caches else { return };
        match instruction {
            Coherence::WriteBack => caches.write_back(&self.view, caches.xcd(*unit)),
            Coherence::Invalidate | Coherence::InvalidateVector => caches.invalidate(*unit),
            Coherence::InvalidateScalar => caches.scalar[*unit].clear(),
        }
    }

    /// Now and then something leaves a cache.
    pub(crate) fn drift(&mut self) {
        if let Some((caches, _)) = &mut self.caches
            && caches.chance()
        {
            caches.evict_any(&self.view);
        }
    }
}
