//! A group of waves, and accesses of global memory that complete some time after they were issued, where launches are lazy.
use crate::cache::Port;
use crate::error::Cause;
use crate::flat::Issued;
use crate::inst::Coherence;
use crate::wave::Wave;
use rand::RngExt;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// An operation that `s_waitcnt vmcnt` waits for.
pub(crate) enum Pending {
    Access(Box<Issued>),
    WriteBack,
}

/// Something that a wave has issued and that is not complete.
pub(crate) struct Entry {
    wave: usize,
    /// Its place among all that the wave has issued.
    place: u64,
    pending: Pending,
    /// Of an access.
    lines: BTreeSet<u64>,
    /// Vector registers that it writes.
    registers: Range<u16>,
}

impl Entry {
    /// Whether this one, which was issued later, completes later.
    fn follows(&self, earlier: &Entry) -> bool {
        match (&self.pending, &earlier.pending) {
            (Pending::WriteBack, _) => true,
            (Pending::Access(_), Pending::WriteBack) => false,
            _ => !self.lines.is_disjoint(&earlier.lines) || self.overwrites(earlier),
        }
    }

    /// Whether both write a register, which results of one wave reach in the order of issue: compilers count on that.
    fn overwrites(&self, earlier: &Entry) -> bool {
        let (ours, theirs) = (&self.registers, &earlier.registers);
        self.wave == earlier.wave && ours.start.max(theirs.start) < ours.end.min(theirs.end)
    }
}

pub(crate) struct Group {
    pub(crate) index: u64,
    /// Its compute unit, if there are caches.
    pub(crate) unit: usize,
    pub(crate) lds: Vec<u8>,
    pub(crate) waves: Vec<Wave>,
    /// In the order in which they were issued.
    pub(crate) late: Vec<Entry>,
}

/// The waves share a compute unit, so that a
/// write-back completes behind all that was issued before it, and an access behind those to the same lines. LLVM
/// counts on that: it has no wave wait for its stores at a barrier.
impl Group {
    /// Memory of a lane or a group has no caches, so an access to that is complete at once. It counts like others.
    pub(crate) fn issue(
        &mut self,
        wave: usize,
        pending: Pending,
        port: &mut Port<'_>,
    ) -> Result<(), Cause> {
        let (lines, registers, is_local) = match &pending {
            Pending::Access(access) => (access.lines(), access.results(), access.is_local()),
            Pending::WriteBack => (BTreeSet::new(), 0..0, false),
        };
        let place = self.waves[wave].issued;
        self.late.push(Entry { wave, place, pending, lines, registers });
        self.waves[wave].issued += 1;
        if is_local { self.complete(self.late.len() - 1, port) } else { Ok(()) }
    }

    /// Completes all that a wave has issued but the last `left`: `vmcnt` goes down in order.
    pub(crate) fn wait(
        &mut self,
        wave: usize,
        left: u64,
        port: &mut Port<'_>,
    ) -> Result<(), Cause> {
        let end = self.waves[wave].issued.saturating_sub(left);
        let due = |entry: &Entry| entry.wave == wave && entry.place < end;
        while let Some(oldest) = self.late.iter().position(due) {
            self.complete(oldest, port)?;
        }
        // All earlier stores are visible to everybody before any later access.
        if std::mem::take(&mut self.waves[wave].unsettled) {
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    /// Now and then one completes.
    pub(crate) fn some(&mut self, port: &mut Port<'_>) -> Result<(), Cause> {
        if self.late.is_empty() {
            return Ok(());
        }
        let Some(random) = port.chance() else { return Ok(()) };
        self.complete(random.random_range(0..self.late.len()), port)
    }

    /// Completes one, and before it those that it follows.
    fn complete(&mut self, at: usize, port: &mut Port<'_>) -> Result<(), Cause> {
        let (late, mut these) = (&mut self.late, vec![at]);
        for earlier in (0..at).rev() {
            if these.iter().any(|&later| late[later].follows(&late[earlier])) {
                these.push(earlier);
            }
        }
        for (done, &next) in these.iter().rev().enumerate() {
            let Entry { wave, pending, .. } = late.remove(next - done);
            match pending {
                Pending::Access(access) => {
                    access.complete(&mut self.waves[wave], port, &mut self.lds)?;
                }
                Pending::WriteBack => {
                    port.apply(Coherence::WriteBack);
                    fence(Ordering::SeqCst);
                }
            }
        }
        Ok(())
    }
}
