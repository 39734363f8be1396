//! Polling, or sleep at once.

use std::sync::atomic::{AtomicU32, Ordering};

/// After unsuccessful spins, at most this many waits sleep at once before one spins again.
const MOST_SLEEPS: u32 = 256;

/// Whether an end that has nothing to do polls its sockets before it sleeps. If no answer comes during a
/// spin, the peer has no core, perhaps because of the spinning, or nothing to send: after each
/// unsuccessful spin, twice as many waits as before sleep at once.
#[derive(Debug, Default)]
pub(super) struct Spins {
    /// Waits that slept after the last unsuccessful spin.
    slept: AtomicU32,
    /// Waits that sleep at once.
    sleeping: AtomicU32,
}

impl Spins {
    /// Whether to spin, now that there is nothing to do.
    pub(super) fn begin(&self) -> bool {
        // Threads that use a link together may lose counts, which does no harm.
        let sleeping = self.sleeping.load(Ordering::Relaxed);
        self.sleeping.store(sleeping.saturating_sub(1), Ordering::Relaxed);
        sleeping == 0
    }

    /// Whether there was something to do before the end of a spin.
    pub(super) fn end(&self, paid: bool) {
        let slept = self.slept.load(Ordering::Relaxed);
        let next = if paid { 0 } else { (slept * 2).clamp(1, MOST_SLEEPS) };
        self.slept.store(next, Ordering::Relaxed);
        self.sleeping.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits that sleep at once, until one spins.
    fn sleeps(spins: &Spins) -> u32 {
        (0..).take_while(|_| !spins.begin()).count() as u32
    }

    #[test]
    fn spins_in_vain_become_rare_until_one_pays() {
        let spins = Spins::default();
        assert_eq!(sleeps(&spins), 0);
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256] {
            spins.end(false);
            assert_eq!(sleeps(&spins), expected);
        }
        spins.end(true);
        assert_eq!((sleeps(&spins), sleeps(&spins)), (0, 0));
        spins.end(false);
        assert_eq!(sleeps(&spins), 1);
    }
}
