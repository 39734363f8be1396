//! Accesses of global memory that complete some time after they were issued, where launches are lazy.
use crate::cache::Port;
use crate::error::Cause;
use crate::flat::Issued;
use crate::wave::Wave;
use rand::RngExt;
use std::sync::atomic::{Ordering, fence};

/// An operation that `s_waitcnt vmcnt` waits for.
pub(crate) enum Pending {
    Access(Box<Issued>),
    WriteBack,
}

impl Pending {
    /// Whether this one, which was issued later, completes later.
    fn follows(&self, earlier: &Pending) -> bool {
        match (self, earlier) {
            (Pending::WriteBack, _) => true,
            (Pending::Access(_), Pending::WriteBack) => false,
            (Pending::Access(this), Pending::Access(earlier)) => this.meets(earlier),
        }
    }
}

/// Something that a wave has issued.
struct Entry {
    wave: usize,
    /// Its place among all that the wave has issued.
    place: u64,
    pending: Pending,
}

/// Operations that the waves of a group have issued and that are not complete, in order. The waves share a compute unit, so that a
/// write-back completes behind all that was issued before it, and an access behind those to the same lines. LLVM
/// counts on that: it has no wave wait for its stores at a barrier.
#[derive(Default)]
pub(crate) struct Queue(Vec<Entry>);

impl Queue {
    pub(crate) fn issue(&mut self, number: usize, wave: &mut Wave, pending: Pending) {
        self.0.push(Entry { wave: number, place: wave.issued, pending });
        wave.issued += 1;
    }

    /// Completes all that a wave has issued but the last `left`: `vmcnt` goes down in order.
    pub(crate) fn wait(
        &mut self,
        (wave, left): (usize, u64),
        waves: &mut [Wave],
        port: &mut Port<'_>,
        lds: &mut [u8],
    ) -> Result<(), Cause> {
        let end = waves[wave].issued.saturating_sub(left);
        let due = |entry: &Entry| entry.wave == wave && entry.place < end;
        while let Some(oldest) = self.0.iter().position(due) {
            self.complete(oldest, waves, port, lds)?;
        }
        // All earlier stores are visible to everybody before any later access.
        if std::mem::take(&mut waves[wave].unsettled) {
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    /// Now and then one completes.
    pub(crate) fn some(
        &mut self,
        waves: &mut [Wave],
        port: &mut Port<'_>,
        lds: &mut [u8],
    ) -> Result<(), Cause> {
        if self.0.is_empty() {
            return Ok(());
        }
        let Some(random) = port.chance() else { return Ok(()) };
        let at = random.random_range(0..self.0.len());
        self.complete(at, waves, port, lds)
    }

    /// Completes one, and before it those that it follows.
    fn complete(
        &mut self,
        at: usize,
        waves: &mut [Wave],
        port: &mut Port<'_>,
        lds: &mut [u8],
    ) -> Result<(), Cause> {
        let mut these = vec![at];
        for earlier in (0..at).rev() {
            if these.iter().any(|&later| self.0[later].pending.follows(&self.0[earlier].pending)) {
                these.push(earlier);
            }
        }
        for (done, &next) in these.iter().rev().enumerate() {
            let Entry { wave, pending, .. } = self.0.remove(next - done);
            match pending {
                Pending::Access(access) => access.complete(&mut waves[wave], port, lds)?,
                Pending::WriteBack => {
                    port.write_back();
                    fence(Ordering::SeqCst);
                }
            }
        }
        Ok(())
    }
}
