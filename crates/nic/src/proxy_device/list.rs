//! Lists of requests that a NIC has its device post together. The lists of `warpverbs-verbs` hold the structures of
//! libibverbs instead, and fixed room for them; a device of that kind makes one of the other.

use std::ops::Range;
use warpverbs_rdma::{Data, Op, SendFlags, Sge, WorkRequest};

/// Work requests to post together, in order.
#[derive(Debug, Default)]
pub struct ProxySends {
    entries: Vec<Entry>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    op: Op,
    inline: bool,
    part: Range<u32>,
    flags: SendFlags,
}

impl ProxySends {
    /// How many.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Identity of the last one.
    pub fn last_id(&self) -> Option<u64> {
        self.entries.last().map(|entry| entry.id)
    }

    /// The requests, in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = WorkRequest<'_>> {
        self.entries.iter().map(|entry| {
            let part = entry.part.start as usize..entry.part.end as usize;
            WorkRequest {
                id: entry.id,
                op: entry.op,
                data: match entry.inline {
                    true => Data::Inline(&self.bytes[part]),
                    false => Data::Sges(&self.sges[part]),
                },
                flags: entry.flags,
            }
        })
    }

    /// Adds a request with inline data, or one whose list is added after it.
    #[inline]
    pub fn push(&mut self, work: WorkRequest<'_>) {
        let WorkRequest { id, op, data, flags } = work;
        let (inline, part) = match data {
            Data::Inline(bytes) => {
                let start = self.bytes.len() as u32;
                self.bytes.extend_from_slice(bytes);
                (true, start..self.bytes.len() as u32)
            }
            Data::Sges(sges) => {
                let start = self.sges.len() as u32;
                self.sges.extend_from_slice(sges);
                (false, start..self.sges.len() as u32)
            }
        };
        self.entries.push(Entry { id, op, inline, part, flags });
    }

    /// Adds an entry to the list of the request that [`Self::close`] adds next.
    #[inline]
    pub(crate) fn add(&mut self, sge: Sge) {
        self.sges.push(sge);
    }

    /// Forgets entries added since the last request.
    pub(crate) fn forget(&mut self) {
        let last = self.entries.iter().rev().find(|entry| !entry.inline);
        self.sges.truncate(last.map_or(0, |entry| entry.part.end as usize));
    }

    /// Adds a request whose list is the last `count` entries added.
    #[inline]
    pub(crate) fn close(&mut self, id: u64, op: Op, flags: SendFlags, count: usize) {
        let end = self.sges.len() as u32;
        let part = end - count as u32..end;
        self.entries.push(Entry { id, op, inline: false, part, flags });
    }

    /// Asks for the completion of the last one.
    pub fn signal_last(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            last.flags |= SendFlags::SIGNALED;
        }
    }

    /// The inline data of the last one, if it has any.
    pub(crate) fn last_inline(&self) -> Option<&[u8]> {
        let last = self.entries.last().filter(|entry| entry.inline)?;
        Some(&self.bytes[last.part.start as usize..last.part.end as usize])
    }

    /// The inline data of the last one is sent from registered memory instead.
    pub(crate) fn outline_last(&mut self, sge: Sge) {
        let start = self.sges.len() as u32;
        if let Some(last) = self.entries.last_mut().filter(|entry| entry.inline) {
            self.bytes.truncate(last.part.start as usize);
            self.sges.push(sge);
            (last.inline, last.part) = (false, start..start + 1);
        }
    }

    /// Takes the last request out, into a list of one.
    pub(crate) fn split_last(&mut self) -> Self {
        let Some(mut last) = self.entries.pop() else { return Self::default() };
        let (mut sges, mut bytes) = (Vec::new(), Vec::new());
        match last.inline {
            true => bytes = self.bytes.split_off(last.part.start as usize),
            false => sges = self.sges.split_off(last.part.start as usize),
        }
        last.part = 0..last.part.end - last.part.start;
        Self { entries: vec![last], sges, bytes }
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.entries.clear();
        self.sges.clear();
        self.bytes.clear();
    }
}

/// Receives to post together, in order.
#[derive(Debug, Default)]
pub struct ProxyReceives {
    /// Identity, and where its entries end.
    entries: Vec<(u64, u32)>,
    sges: Vec<Sge>,
}

impl ProxyReceives {
    /// How many.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Each one's identity, to be given back with its completion, and where its message goes.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[Sge])> {
        let mut start = 0;
        self.entries.iter().map(move |&(id, end)| {
            let sges = &self.sges[start..end as usize];
            start = end as usize;
            (id, sges)
        })
    }

    /// Adds a receive.
    pub fn push(&mut self, id: u64, sges: &[Sge]) {
        self.sges.extend_from_slice(sges);
        self.entries.push((id, self.sges.len() as u32));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.sges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_give_back_what_was_put_in() {
        let sge = |addr| Sge::new(addr, 8, 5);
        let work = |id, data| WorkRequest { id, op: Op::Send, data, flags: SendFlags::FENCE };
        let (pair, slot) = ([sge(2), sge(3)], [sge(4)]);
        let all = [
            work(1, Data::Inline(b"abc")),
            work(2, Data::Sges(&pair)),
            work(3, Data::Inline(b"d")),
        ];
        let mut list = ProxySends::default();
        all.into_iter().for_each(|work| list.push(work));
        assert!(list.iter().eq(all));
        list.signal_last();
        assert_eq!(
            list.iter().map(|work| work.flags.contains(SendFlags::SIGNALED)).collect::<Vec<_>>(),
            [false, false, true]
        );
        assert_eq!(list.last_inline(), Some(&b"d"[..]));
        list.outline_last(sge(4));
        let last = list.split_last();
        let flags = SendFlags::FENCE | SendFlags::SIGNALED;
        let moved = WorkRequest { flags, ..work(3, Data::Sges(&slot)) };
        assert!(last.iter().eq([moved]) && last.last_inline().is_none());
        assert!(list.split_last().iter().eq([work(2, Data::Sges(&pair))]));
        assert!(list.split_last().iter().eq([work(1, Data::Inline(b"abc"))]));
        list.clear();
        assert!(list.is_empty());

        let mut list = ProxyReceives::default();
        list.push(7, &[]);
        list.push(8, &pair);
        assert!(list.iter().eq([(7, &[][..]), (8, &pair[..])]));
    }
}
