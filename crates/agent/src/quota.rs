//! A bound on the memory that all peers together may use at an agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of which shares are taken.
pub(crate) struct Quota {
    most: usize,
    used: AtomicUsize,
}

/// A part of the bytes. They are free again when it is dropped.
pub(crate) struct Share {
    of: Arc<Quota>,
    bytes: usize,
}

impl Quota {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicUsize::new(0) })
    }

    /// Bytes that are not taken.
    pub(crate) fn free(&self) -> usize {
        self.most.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// A share of this many bytes, if they are free.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.ok().map(|_| Share { of: self.clone(), bytes })
    }
}

impl Share {
    /// Makes a share of its own of some of the bytes.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { of: self.of.clone(), bytes }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_taken_up_to_the_most_and_come_back() {
        let quota = Quota::new(100);
        let mut first = quota.take(60).unwrap();
        assert!(quota.take(41).is_none() && quota.take(usize::MAX).is_none());
        let second = quota.take(40).unwrap();
        let part = first.split(50);
        drop(first);
        assert_eq!(quota.free(), 10);
        drop((part, second));
        assert_eq!(quota.free(), 100);
    }
}
