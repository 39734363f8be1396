//! Where bytes of transfers belong in the memory of this end, and the copies that bring them there.

use crate::error::TcpError;
use crate::keys::Keys;
use crate::protocol::{Due, Failure, Kind, Need, Protocol, Request, Target};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use warpverbs_devmem::Fragment;
use warpverbs_mem::{BounceBuffer, HostBuf, MemError, Pending, Progress, Region, SmallBuf, copy};

/// A copy between a bounce buffer and memory of a device.
struct Copying {
    copy: Pending,
    then: Then,
}

/// The consequence of a copy.
pub(super) enum Then {
    /// Bytes of a chunk are where they belong.
    Place { kind: Kind, id: u64, len: u64, buffer: Option<BounceBuffer> },
    /// Bytes of a chunk that lay in a fragment are where they belong.
    Fragment { kind: Kind, id: u64, socket: u16, part: Fragment },
    /// A message that came before its receive is where it belongs.
    Deliver(u64),
}

/// The ledger of a link, and the memory of this end.
pub(super) struct Placement {
    pub(super) protocol: Protocol<Region>,
    pub(super) keys: Keys,
    /// Messages before their receive, and notifications that are not complete.
    buffers: FxHashMap<(Kind, u64), Region>,
    copies: VecDeque<Copying>,
    /// Fragments that were copied, with their sockets.
    pub(super) free: Vec<(u16, Fragment)>,
    /// The first error of this end's memory.
    pub(super) error: Option<MemError>,
}

impl Placement {
    pub(super) fn new(protocol: Protocol<Region>, keys: Keys) -> Self {
        Self {
            protocol,
            keys,
            buffers: FxHashMap::default(),
            copies: VecDeque::new(),
            free: Vec::new(),
            error: None,
        }
    }

    /// Whether copies are under way.
    pub(super) fn is_copying(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Waits for the copies that are under way.
    pub(super) fn finish(&mut self) {
        self.copies.clear();
    }

    /// The memory of a request that is not complete.
    pub(super) fn memory_of(&self, request: Request) -> Option<Region> {
        self.protocol.memory(request).cloned()
    }

    /// The memory of a transfer; `None` if it is refused by now.
    pub(super) fn target(&mut self, due: &Due) -> Result<Option<Region>, MemError> {
        match due.target {
            Target::Request(request) => Ok(self.memory_of(request)),
            Target::Buffer => {
                let none = match self.buffers.entry((due.kind, due.id)) {
                    Entry::Occupied(buffer) => return Ok(Some(buffer.get().clone())),
                    Entry::Vacant(none) => none,
                };
                let buffer = match due.total as usize {
                    total @ 0..=4096 => SmallBuf::region(total),
                    total => HostBuf::region(total)?,
                };
                Ok(Some(none.insert(buffer).clone()))
            }
            Target::Region { key, addr } => {
                Ok(self.keys.find(key, addr, due.total, Need::Write).ok())
            }
            Target::Discard => Ok(None),
        }
    }

    /// The bytes of a notification or a message in its buffer.
    fn unbuffer(&mut self, kind: Kind, id: u64) -> Region {
        // An empty one has no buffer.
        self.buffers.remove(&(kind, id)).unwrap_or_else(|| SmallBuf::region(0))
    }

    /// Takes a notification out of its buffer.
    pub(super) fn notification(&mut self, id: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        if let Err(error) = self.unbuffer(Kind::Notification, id).read(0, &mut bytes) {
            self.error.get_or_insert(error);
        }
        bytes
    }

    /// Copies a message that came before its receive.
    pub(super) fn deliver(&mut self, id: u64, len: u64) {
        let buffer = self.unbuffer(Kind::Message, id);
        let memory = self.memory_of(Request::receive(id));
        self.copy(Ok(memory), 0, (&buffer, 0), len, Then::Deliver(id));
    }

    /// Copies bytes of a transfer to where they belong; nothing belongs there if `to` has no memory.
    pub(super) fn copy(
        &mut self,
        to: Result<Option<Region>, MemError>,
        offset: u64,
        (from, from_offset): (&Region, u64),
        len: u64,
        then: Then,
    ) {
        let started = to.and_then(|to| match to {
            Some(to) => copy(&to, offset, from, from_offset, len as usize).map(Some),
            None => Ok(None),
        });
        match started {
            Ok(Some(Progress::Pending(copy))) => self.copies.push_back(Copying { copy, then }),
            Ok(done) => self.copied(then, done.is_none()),
            Err(error) => {
                self.error.get_or_insert(error);
                self.copied(then, true);
            }
        }
    }

    /// Finishes copies that are done. Whether there were any.
    pub(super) fn finish_copies(&mut self) -> bool {
        let before = self.copies.len();
        while let Some(first) = self.copies.front() {
            let failed = match first.copy.is_done() {
                Ok(false) => break,
                outcome => outcome.err(),
            };
            let Some(Copying { then, .. }) = self.copies.pop_front() else { break };
            self.copied(then, failed.is_some());
            self.error = self.error.take().or(failed);
        }
        self.copies.len() != before
    }

    fn copied(&mut self, then: Then, failed: bool) {
        match then {
            Then::Deliver(id) => self.protocol.delivered(id, failed),
            Then::Place { kind, id, len, buffer } => {
                self.placed(kind, id, len, failed);
                drop(buffer);
            }
            Then::Fragment { kind, id, socket, part } => {
                self.placed(kind, id, part.len, failed);
                self.free.push((socket, part));
            }
        }
    }

    /// Bytes of a transfer have been placed, or could not be.
    pub(super) fn placed(&mut self, kind: Kind, id: u64, len: u64, failed: bool) {
        match failed {
            false => self.protocol.placed(kind, id, len),
            true => self.protocol.misplaced(kind, id, len),
        }
    }

    /// The error of a failed request.
    pub(super) fn error_of(&self, failure: Failure) -> TcpError {
        match failure {
            Failure::Unknown => TcpError::UnknownRequest,
            Failure::Refused(refusal) => TcpError::Refused(refusal),
            Failure::TooLong { len, capacity } => TcpError::TooLong { len, capacity },
            Failure::Misplaced => {
                let what = "bringing a message into its memory";
                let unknown = MemError::CopyFailed { code: 0, what };
                TcpError::Memory(self.error.clone().unwrap_or(unknown))
            }
        }
    }
}
