//! Numbered slots for objects: the lowest free number is used first.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::marker::PhantomData;

/// The number of an object of one kind.
pub(crate) trait Slot: Copy + Eq + std::fmt::Display {
    /// Number `number`.
    fn of(number: u32) -> Self;

    /// Where it is among those of its kind.
    fn at(self) -> usize;
}

macro_rules! slots {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u32);

        impl Slot for $name {
            #[inline]
            fn of(number: u32) -> Self {
                Self(number)
            }

            #[inline]
            fn at(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

slots! {
    /// Slot of a QP: of both its halves, of its doorbell and of its end in a backend.
    QpSlot
    /// Slot of a CQ.
    CqSlot
    /// Slot of an SRQ.
    SrqSlot
    /// Slot of a page of doorbell registers.
    UarSlot
    /// Slot of an address handle, which is its number.
    AhSlot
}

/// Objects by number. Numbers stay dense, so that what is scanned by number stays short.
#[derive(Debug)]
pub(crate) struct Slots<K, T> {
    items: Vec<Option<Box<T>>>,
    free: BinaryHeap<Reverse<u32>>,
    max: u32,
    /// Look-ups by [`Self::live`] that found nothing.
    stale: Cell<u64>,
    kind: PhantomData<K>,
}

impl<K: Slot, T> Slots<K, T> {
    pub(crate) fn new(max: u32) -> Self {
        let (items, free, stale) = (Vec::new(), BinaryHeap::new(), Cell::new(0));
        Self { items, free, max, stale, kind: PhantomData }
    }

    /// The number that [`Self::insert`] will use; `None` if all are taken.
    pub(crate) fn next(&self) -> Option<u32> {
        match self.free.peek() {
            Some(Reverse(slot)) => Some(*slot),
            None => Some(self.items.len() as u32).filter(|&slot| slot < self.max),
        }
    }

    pub(crate) fn insert(&mut self, item: T) -> Option<K> {
        let slot = self.next()?;
        match self.free.pop() {
            Some(_) => self.items[slot as usize] = Some(Box::new(item)),
            None => self.items.push(Some(Box::new(item))),
        }
        Some(K::of(slot))
    }

    pub(crate) fn remove(&mut self, slot: K) -> Option<Box<T>> {
        let item = self.items.get_mut(slot.at())?.take()?;
        self.free.push(Reverse(slot.at() as u32));
        Some(item)
    }

    /// The object in `slot`, if there is one.
    #[inline]
    pub(crate) fn get(&self, slot: K) -> Option<&T> {
        self.items.get(slot.at())?.as_deref()
    }

    /// The object in `slot`, if there is one.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: K) -> Option<&mut T> {
        self.items.get_mut(slot.at())?.as_deref_mut()
    }

    /// The object in `slot`, which exists: every copy of a slot is dropped before its object is
    /// removed. If it does not exist, that is counted, and ends a debug build.
    #[inline]
    pub(crate) fn live(&self, slot: K) -> Option<&T> {
        let found = self.get(slot);
        if found.is_none() {
            count_stale::<T>(&self.stale, slot);
        }
        found
    }

    /// As [`Self::live`].
    #[inline]
    pub(crate) fn live_mut(&mut self, slot: K) -> Option<&mut T> {
        let found = self.items.get_mut(slot.at()).and_then(Option::as_deref_mut);
        if found.is_none() {
            count_stale::<T>(&self.stale, slot);
        }
        found
    }

    /// Look-ups by [`Self::live`] that found nothing.
    pub(crate) fn stale(&self) -> u64 {
        self.stale.get()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().filter_map(|item| item.as_deref())
    }

    /// One more than the highest number ever used.
    pub(crate) fn high_water(&self) -> usize {
        self.items.len()
    }
}

#[cold]
fn count_stale<T>(stale: &Cell<u64>, slot: impl Slot) {
    stale.set(stale.get() + 1);
    let kind = std::any::type_name::<T>();
    tracing::error!(%slot, kind, "a slot was used after its object was removed");
    debug_assert!(false, "{kind} {slot} does not exist");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_comes_first() {
        let mut slots = Slots::<QpSlot, char>::new(3);
        let at = |slot| Some(QpSlot(slot));
        assert_eq!([0; 3].map(|_| slots.insert('a')), [at(0), at(1), at(2)]);
        assert_eq!(slots.insert('b'), None);
        assert!(slots.remove(QpSlot(2)).is_some() && slots.remove(QpSlot(0)).is_some());
        assert!(slots.remove(QpSlot(0)).is_none());
        assert_eq!([slots.insert('c'), slots.insert('d')], [at(0), at(2)]);
        assert_eq!(slots.iter().collect::<String>(), "cad");
    }
}
