//! Accesses of global memory that complete some time after they were issued, where launches are lazy.
use crate::cache::Port;
use crate::error::Cause;
use crate::flat::Issued;
use crate::wave::Wave;
use rand::RngExt;
use std::sync::atomic::{Ordering, fence};

/// What `s_waitcnt vmcnt` waits for.
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

/// What the waves of a group have issued and is not complete, in order, each with the number of its wave. They share a
/// compute unit, so that a write-back completes behind all that was issued before it, and an access behind
/// those to the same lines. LLVM counts on that: it has no wave wait for its stores at a barrier.
#[derive(Default)]
pub(crate) struct Queue(Vec<(usize, Pending)>);

impl Queue {
    pub(crate) fn issue(&mut self, wave: usize, pending: Pending) {
        self.0.push((wave, pending));
    }

    /// Completes accesses of a wave, the oldest first, until `left` are under way.
    pub(crate) fn wait(
        &mut self,
        (wave, left): (usize, usize),
        waves: &mut [Wave],
        port: &mut Port<'_>,
        lds: &mut [u8],
    ) -> Result<(), Cause> {
        let own = |queue: &Self| queue.0.iter().filter(|(other, _)| *other == wave).count();
        for _ in left..own(self) {
            let oldest = self.0.iter().position(|(other, _)| *other == wave).unwrap_or(0);
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
            if these.iter().any(|&later| self.0[later].1.follows(&self.0[earlier].1)) {
                these.push(earlier);
            }
        }
        for (done, &next) in these.iter().rev().enumerate() {
            match self.0.remove(next - done) {
                (wave, Pending::Access(access)) => access.complete(&mut waves[wave], port, lds)?,
                (_, Pending::WriteBack) => {
                    port.write_back();
                    fence(Ordering::SeqCst);
                }
            }
        }
        Ok(())
    }
}
