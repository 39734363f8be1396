//! Work as a device finds it in a queue. Formats of queues differ in their bytes; these are the values
//! that each of them gives.

use crate::{Op, Qpn, SendFlags, Sge};

/// A checked scatter/gather list, still in the bytes of a queue whose entries are `E`s.
#[derive(Debug, PartialEq)]
pub struct Sges<'a, E> {
    entries: &'a [E],
    bytes: u64,
}

impl<'a, E> Sges<'a, E>
where
    for<'e> Sge: From<&'e E>,
{
    /// The list of `entries`, which passed every check of their format and hold `bytes` together.
    #[inline]
    pub const fn checked(entries: &'a [E], bytes: u64) -> Self {
        Self { entries, bytes }
    }

    /// Bytes of all entries together.
    #[inline]
    pub const fn byte_len(&self) -> u64 {
        self.bytes
    }

    /// Number of entries.
    #[inline]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// There is no entry: nothing is carried.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries in order. Whether one may be of zero length depends on the format.
    #[inline]
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = Sge> + DoubleEndedIterator + Clone + use<'a, E> {
        self.entries.iter().map(Sge::from)
    }

    /// The only entry, if there is exactly one.
    #[inline]
    pub fn single(&self) -> Option<Sge> {
        match self.entries {
            [entry] => Some(Sge::from(entry)),
            _ => None,
        }
    }
}

// By hand: `E` itself need be neither.
impl<E> Copy for Sges<'_, E> {}

impl<E> Clone for Sges<'_, E> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Default for Sges<'_, E> {
    fn default() -> Self {
        Self { entries: &[], bytes: 0 }
    }
}

/// A send work request as a queue holds it: a [`WorkRequest`](crate::WorkRequest) without the number that
/// its poster keeps to itself. `E` is an entry in the queue's bytes.
#[derive(Debug, PartialEq)]
pub struct Posted<'a, E> {
    /// The operation.
    pub op: Op,
    /// Where it goes, if it is a datagram's.
    pub to: Option<Addressed>,
    /// Bytes to send that the queue holds itself; then `local` is empty.
    pub inline: &'a [u8],
    /// The memory to send from, or for what is read.
    pub local: Sges<'a, E>,
    /// The 8 bytes for the old value of an atomic, which has neither of the two before.
    pub result: Option<Sge>,
    /// How it was posted.
    pub flags: SendFlags,
}

impl<E> Posted<'_, E> {
    /// Bytes carried either way: the payload, what is read, or the size of the atomic's word.
    #[inline]
    pub const fn byte_len(&self) -> u64 {
        match self.result {
            Some(result) => result.len as u64,
            None => self.inline.len() as u64 + self.local.bytes,
        }
    }
}

/// Where a datagram goes, by an address handle of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressed {
    /// The device's number of the address handle.
    pub handle: u32,
    /// The QP there.
    pub qpn: Qpn,
    /// The queue key of that QP; if bit 31 is set, the sender's own is used.
    pub qkey: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry(u32);

    impl From<&Entry> for Sge {
        fn from(entry: &Entry) -> Self {
            Sge::new(7, entry.0, 1)
        }
    }

    #[test]
    fn a_list_is_what_its_entries_mean() {
        let entries = [Entry(2), Entry(3)];
        let both = Sges::checked(&entries, 5);
        assert_eq!((both.len(), both.byte_len(), both.single()), (2, 5, None));
        assert!(both.iter().rev().eq([Sge::new(7, 3, 1), Sge::new(7, 2, 1)]));
        let one = Sges::checked(&entries[..1], 2);
        assert_eq!(one.single(), Some(Sge::new(7, 2, 1)));
        assert!(Sges::<Entry>::default().is_empty() && !one.is_empty());
    }
}
