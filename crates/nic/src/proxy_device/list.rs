//! Lists of requests to post together.

use super::{Header, ProxySge, Request, Source, WorkRequest};
use std::ops::Range;

/// Work requests to post together, in order.
#[derive(Debug, Default)]
pub struct SendList {
    entries: Vec<Entry>,
    sges: Vec<ProxySge>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    request: Request,
    inline: bool,
    part: Range<u32>,
    signaled: bool,
    fence: bool,
    solicited: bool,
}

impl SendList {
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
                request: entry.request,
                source: match entry.inline {
                    true => Source::Inline(&self.bytes[part]),
                    false => Source::Sges(&self.sges[part]),
                },
                signaled: entry.signaled,
                fence: entry.fence,
                solicited: entry.solicited,
            }
        })
    }

    /// Adds a request with inline data, or one whose list is added after it.
    #[inline]
    pub fn push(&mut self, work: WorkRequest<'_>) {
        let WorkRequest { id, request, source, signaled, fence, solicited } = work;
        let (inline, part) = match source {
            Source::Inline(bytes) => {
                let start = self.bytes.len() as u32;
                self.bytes.extend_from_slice(bytes);
                (true, start..self.bytes.len() as u32)
            }
            Source::Sges(sges) => {
                let start = self.sges.len() as u32;
                self.sges.extend_from_slice(sges);
                (false, start..self.sges.len() as u32)
            }
        };
        self.entries.push(Entry { id, request, inline, part, signaled, fence, solicited });
    }

    /// Adds an entry to the list of the request that [`Self::close`] adds next.
    #[inline]
    pub(crate) fn add(&mut self, sge: ProxySge) {
        self.sges.push(sge);
    }

    /// Forgets entries added since the last request.
    pub(crate) fn forget(&mut self) {
        let last = self.entries.iter().rev().find(|entry| !entry.inline);
        self.sges.truncate(last.map_or(0, |entry| entry.part.end as usize));
    }

    /// Adds a request whose list is the last `count` entries added.
    #[inline]
    pub(crate) fn close(&mut self, header: Header, request: Request, count: usize) {
        let end = self.sges.len() as u32;
        let part = end - count as u32..end;
        let Header { id, signaled, fence, solicited } = header;
        self.entries.push(Entry { id, request, inline: false, part, signaled, fence, solicited });
    }

    /// Asks for the completion of the last one.
    pub fn signal_last(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            last.signaled = true;
        }
    }

    /// The inline data of the last one, if it has any.
    pub(crate) fn last_inline(&self) -> Option<&[u8]> {
        let last = self.entries.last().filter(|entry| entry.inline)?;
        Some(&self.bytes[last.part.start as usize..last.part.end as usize])
    }

    /// The inline data of the last one is sent from registered memory instead.
    pub(crate) fn outline_last(&mut self, sge: ProxySge) {
        let start = self.sges.len() as u32;
        if let Some(last) = self.entries.last_mut().filter(|entry| entry.inline) {
            self.bytes.truncate(last.part.start as usize);
            self.sges.push(sge);
            (last.inline, last.part) = (false, start..start + 1);
        }
    }

    /// Takes the last one out, as a list of its own.
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
pub struct RecvList {
    /// Identity, and where its entries end.
    entries: Vec<(u64, u32)>,
    sges: Vec<ProxySge>,
}

impl RecvList {
    /// How many.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Each one's identity, to be given back with its completion, and where its message goes.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[ProxySge])> {
        let mut start = 0;
        self.entries.iter().map(move |&(id, end)| {
            let sges = &self.sges[start..end as usize];
            start = end as usize;
            (id, sges)
        })
    }

    /// Adds a receive.
    pub fn push(&mut self, id: u64, sges: &[ProxySge]) {
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
        let sge = |addr| ProxySge { addr, len: 8, lkey: 5 };
        let work = |id, source| WorkRequest {
            id,
            request: Request::Send,
            source,
            signaled: false,
            fence: true,
            solicited: false,
        };
        let (pair, slot) = ([sge(2), sge(3)], [sge(4)]);
        let all = [
            work(1, Source::Inline(b"abc")),
            work(2, Source::Sges(&pair)),
            work(3, Source::Inline(b"d")),
        ];
        let mut list = SendList::default();
        all.into_iter().for_each(|work| list.push(work));
        assert!(list.iter().eq(all));
        list.signal_last();
        assert_eq!(list.iter().map(|work| work.signaled).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(list.last_inline(), Some(&b"d"[..]));
        list.outline_last(sge(4));
        let last = list.split_last();
        let moved = WorkRequest { signaled: true, ..work(3, Source::Sges(&slot)) };
        assert!(last.iter().eq([moved]) && last.last_inline().is_none());
        assert!(list.split_last().iter().eq([work(2, Source::Sges(&pair))]));
        assert!(list.split_last().iter().eq([work(1, Source::Inline(b"abc"))]));
        list.clear();
        assert!(list.is_empty());

        let mut list = RecvList::default();
        list.push(7, &[]);
        list.push(8, &pair);
        assert!(list.iter().eq([(7, &[][..]), (8, &pair[..])]));
    }
}
