//! Work that waits for copies: packets, completions, requests, receives.

use super::{CopyQueue, Fault};
use std::collections::VecDeque;

/// Items in order, each behind the copies with numbers below one: it goes when they have ended and
/// all items before it have gone.
#[derive(Debug)]
pub(crate) struct Behind<T>(VecDeque<(u64, T)>);

impl<T> Default for Behind<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Behind<T> {
    /// Adds an item that waits for the copies below `upto`.
    pub(crate) fn push(&mut self, upto: u64, item: T) {
        self.0.push_back((upto, item));
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first item.
    pub(crate) fn first(&self) -> Option<&T> {
        self.0.front().map(|(_, item)| item)
    }

    /// The first item, if its copies have ended, well or not.
    pub(crate) fn pop<C: Copy>(&mut self, copies: &CopyQueue<C>) -> Option<T> {
        let (upto, _) = self.0.front()?;
        copies.has_ended(*upto).then(|| self.0.pop_front()).flatten().map(|(_, item)| item)
    }

    /// The first item, if its copies have ended, and the fault of the last of them.
    pub(crate) fn pop_outcome<C: Copy>(
        &mut self,
        copies: &CopyQueue<C>,
    ) -> Option<(T, Result<(), Fault>)> {
        let (upto, _) = self.0.front()?;
        let outcome = match copies.outcome(*upto) {
            Ok(false) => return None,
            Ok(true) => Ok(()),
            Err(fault) => Err(fault),
        };
        self.0.pop_front().map(|(_, item)| (item, outcome))
    }

    /// All items, each with the number that it waits for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(upto, item)| (*upto, item))
    }

    /// All items.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, item)| item)
    }

    /// Forgets the first `count` items.
    pub(crate) fn forget(&mut self, count: usize) {
        self.0.drain(..count);
    }

    /// Takes out the items for which `which` is true.
    pub(crate) fn extract(&mut self, which: impl Fn(u64, &T) -> bool) -> Vec<T> {
        let (taken, kept): (VecDeque<_>, _) =
            std::mem::take(&mut self.0).into_iter().partition(|(upto, item)| which(*upto, item));
        self.0 = kept;
        taken.into_iter().map(|(_, item)| item).collect()
    }
}
