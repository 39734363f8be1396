//! Memory of the peer that WRITEs have shown to lie within its key. A region is one piece, so what
//! lies between two places that a key reaches is reached as well.

use warpverbs_wire::Rkey;

const KEYS: usize = 8;

/// For each of the keys seen last, from where to where.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    ranges: [Option<(Rkey, u64, u64)>; KEYS],
    next: usize,
}

impl Shown {
    /// `len` bytes from `va` on were written.
    pub(crate) fn add(&mut self, rkey: Rkey, va: u64, len: u32) {
        // A WRITE of no bytes needs no key, and shows nothing.
        let Some(end) = va.checked_add(len.into()).filter(|end| *end > va) else { return };
        let known = self.ranges.iter_mut().flatten().find(|(known, ..)| *known == rkey);
        match known {
            Some((_, from, to)) => (*from, *to) = ((*from).min(va), (*to).max(end)),
            None => {
                self.ranges[self.next] = Some((rkey, va, end));
                self.next = (self.next + 1) % KEYS;
            }
        }
    }

    /// Whether a WRITE of `len` bytes to `va` stays within what is known.
    #[inline]
    pub(crate) fn covers(&self, rkey: Rkey, va: u64, len: u32) -> bool {
        let end = va.checked_add(len.into());
        let inside = |(known, from, to): &(Rkey, u64, u64)| {
            *known == rkey && *from <= va && end.is_some_and(|end| end <= *to)
        };
        self.ranges.iter().flatten().any(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_key_are_one_and_the_oldest_key_goes() {
        let mut shown = Shown::default();
        shown.add(Rkey(1), 100, 50);
        shown.add(Rkey(1), 400, 10);
        shown.add(Rkey(1), 0, 0);
        let covers = |shown: &Shown, va, len| shown.covers(Rkey(1), va, len);
        assert!(covers(&shown, 100, 310) && covers(&shown, 200, 8));
        assert!(!covers(&shown, 99, 8) && !covers(&shown, 400, 11) && !covers(&shown, u64::MAX, 2));
        assert!(!shown.covers(Rkey(2), 100, 8));
        (2..=KEYS as u32 + 1).for_each(|key| shown.add(Rkey(key), 0, 8));
        assert!(!covers(&shown, 100, 8) && shown.covers(Rkey(2), 0, 8));
    }
}
