//! The send queue: requests from their posting until their completion is polled.

use alloc::collections::VecDeque;

use warpverbs_wire::Msn;

use super::shown::Shown;
use crate::{Config, Op, Remote, Request, WrId};

/// A posted request and its place in the sequence of packets. Positions count packets from the
/// start of the connection and never wrap; a PSN is the starting PSN plus a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) request: Request,
    /// Position of its first packet; a READ takes one for each packet of its response.
    pub(crate) first: u64,
    pub(crate) packets: u32,
    /// Sequence number of its (first) message, from 1.
    pub(crate) ssn: Msn,
    /// A WRITE whose packets are messages of their own.
    pub(crate) split: bool,
}

impl Entry {
    /// One past its last position.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }

    /// Packets before `position`, which is one of its own or its end.
    #[inline]
    pub(crate) fn packets_before(&self, position: u64) -> u32 {
        (position - self.first) as u32
    }

    /// The position after the last that a READ request at `position` asks for: requests end at
    /// multiples of `chunk`, wherever they begin, so that a repeated one lies within the original.
    pub(crate) fn chunk_end(&self, position: u64, chunk: u32) -> u64 {
        let chunks = u64::from(self.packets_before(position) / chunk) + 1;
        self.end().min(self.first + chunks * u64::from(chunk))
    }
}

/// Entries in order of posting: done, then being sent or awaiting answers, then not yet begun.
#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: VecDeque<Entry>,
    depth: u32,
    mtu: u32,
    chunk: u32,
    write_split: u32,
    shown: Shown,
    /// Entries at the front that are complete and not yet polled.
    done: usize,
    /// The entry to send from next.
    at: usize,
    /// Position of the next entry posted.
    tail: u64,
    ssn: Msn,
}

impl SendQueue {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            entries: VecDeque::with_capacity(config.send_depth as usize),
            depth: config.send_depth,
            mtu: config.mtu.bytes() as u32,
            chunk: config.read_chunk,
            write_split: config.write_split,
            shown: Shown::default(),
            done: 0,
            at: 0,
            tail: 0,
            ssn: Msn::default(),
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.depth as usize
    }

    /// Takes a request that was checked; the queue is not full.
    #[inline]
    pub(crate) fn push(&mut self, request: Request) {
        let packets = match request.op.is_atomic() {
            true => 1,
            false => request.len.div_ceil(self.mtu).max(1),
        };
        let split = match request.op {
            Op::Write(Remote { addr: va, rkey }) => {
                packets <= self.write_split && self.shown.covers(rkey, va, request.len)
            }
            _ => false,
        };
        let messages = match request.op {
            Op::Read(_) => packets.div_ceil(self.chunk),
            _ if split => packets,
            _ => 1,
        };
        let entry = Entry { request, first: self.tail, packets, ssn: self.ssn + 1, split };
        self.tail = entry.end();
        self.ssn += messages;
        self.entries.push_back(entry);
    }

    /// The oldest entry that is not complete.
    #[inline]
    pub(crate) fn head(&self) -> Option<&Entry> {
        self.entries.get(self.done)
    }

    /// Messages that the peer may have completed, as its message sequence number counts them: at
    /// least those before the oldest that is not answered, at most all that are posted.
    pub(crate) fn messages(&self) -> (Msn, Msn) {
        (self.head().map_or(self.ssn, |head| head.ssn - 1), self.ssn)
    }

    /// The entry to send from next.
    #[inline]
    pub(crate) fn current(&self) -> Option<&Entry> {
        self.entries.get(self.at)
    }

    /// The entry after the current one.
    #[inline]
    pub(crate) fn following(&self) -> Option<&Entry> {
        self.entries.get(self.at + 1)
    }

    /// The incomplete entry that has `position`.
    pub(crate) fn find(&self, position: u64) -> Option<&Entry> {
        self.entries.range(self.done..).find(|entry| position < entry.end())
    }

    /// Whether a request is posted and not complete.
    pub(crate) fn is_outstanding(&self, id: WrId) -> bool {
        self.entries.range(self.done..).any(|entry| entry.request.id == id)
    }

    /// Whether a request that is not complete was posted before another one.
    pub(crate) fn is_before(&self, id: WrId, other: WrId) -> bool {
        let mut found = self.entries.range(self.done..).map(|entry| entry.request.id);
        found.find(|found| *found == id || *found == other) == Some(id)
    }

    /// The current entry is sent to its end.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.at += 1;
    }

    /// Back to the head, or forward to it.
    pub(crate) fn seek_head(&mut self) {
        self.at = self.done;
    }

    /// To the entry of `position`, not before the head.
    pub(crate) fn seek(&mut self, position: u64) {
        let before = self.entries.partition_point(|entry| entry.end() <= position);
        self.at = before.max(self.done);
    }

    /// Incomplete entries of which something was sent, if all before the current one was.
    pub(crate) fn sent(&self) -> impl Iterator<Item = &Entry> {
        let end = self.entries.len().min(self.at + 1);
        self.entries.range(self.done..end.max(self.done))
    }

    /// The head is complete.
    #[inline]
    pub(crate) fn finish_head(&mut self) {
        if let Some(Entry { request: Request { op, len, .. }, split: false, .. }) = self.head()
            && let Op::Write(Remote { addr: va, rkey }) | Op::WriteImm(Remote { addr: va, rkey }, _) =
                *op
            && self.write_split > 0
        {
            self.shown.add(rkey, va, *len);
        }
        self.done += 1;
        self.at = self.at.max(self.done);
    }

    /// The oldest complete entry, once.
    #[inline]
    pub(crate) fn pop_done(&mut self) -> Option<WrId> {
        self.done = self.done.checked_sub(1)?;
        self.at -= 1;
        self.entries.pop_front().map(|entry| entry.request.id)
    }

    /// Takes all complete entries; how many.
    #[inline]
    pub(crate) fn take_done(&mut self) -> usize {
        let count = core::mem::take(&mut self.done);
        self.at -= count;
        self.entries.drain(..count);
        count
    }

    /// The oldest entry, complete or not.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.done = self.done.saturating_sub(1);
        self.at = self.at.saturating_sub(1);
        self.entries.pop_front()
    }
}
