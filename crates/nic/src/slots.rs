//! Numbered places for objects: the lowest free number is given out first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Objects by number. Numbers stay dense, so that what is scanned by number stays short.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    items: Vec<Option<Box<T>>>,
    free: BinaryHeap<Reverse<u32>>,
    max: u32,
}

impl<T> Slots<T> {
    pub(crate) fn new(max: u32) -> Self {
        Self { items: Vec::new(), free: BinaryHeap::new(), max }
    }

    /// The number that [`Self::insert`] will use; `None` if all are taken.
    pub(crate) fn next(&self) -> Option<u32> {
        match self.free.peek() {
            Some(Reverse(slot)) => Some(*slot),
            None => Some(self.items.len() as u32).filter(|&slot| slot < self.max),
        }
    }

    pub(crate) fn insert(&mut self, item: T) -> Option<u32> {
        let slot = self.next()?;
        match self.free.pop() {
            Some(_) => self.items[slot as usize] = Some(Box::new(item)),
            None => self.items.push(Some(Box::new(item))),
        }
        Some(slot)
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<T>> {
        let item = self.items.get_mut(slot as usize)?.take()?;
        self.free.push(Reverse(slot));
        Some(item)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.items.get(slot as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.items.get_mut(slot as usize)?.as_deref_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().filter_map(|item| item.as_deref())
    }

    /// One more than the highest number ever given out.
    pub(crate) fn high_water(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_comes_first() {
        let mut slots = Slots::new(3);
        assert_eq!([0; 3].map(|_| slots.insert('a')), [Some(0), Some(1), Some(2)]);
        assert_eq!(slots.insert('b'), None);
        assert!(slots.remove(2).is_some() && slots.remove(0).is_some());
        assert!(slots.remove(0).is_none());
        assert_eq!([slots.insert('c'), slots.insert('d')], [Some(0), Some(2)]);
        assert_eq!(slots.iter().collect::<String>(), "cad");
    }
}
