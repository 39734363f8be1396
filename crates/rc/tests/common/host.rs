//! One region of memory with a key, receives, and what peers do to them.

use std::collections::{HashMap, VecDeque};

use warpverbs_rc::{Atomic, AtomicOp, Denied, Host, Need, Receive, Remote};
use warpverbs_wire::Rkey;

pub(crate) const BASE: u64 = 0x7f00_0000_1000;
pub(crate) const RKEY: Rkey = Rkey(0xcafe_0042);
/// The beginning of the memory.
pub(crate) const REMOTE: Remote = Remote { addr: BASE, rkey: RKEY };

#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) posted: VecDeque<(u64, usize)>,
    /// Receives taken by messages: their contents.
    pub(crate) taken: HashMap<u64, Vec<u8>>,
    /// Atomics done.
    pub(crate) atomics: u32,
    pub(crate) revoked: bool,
    pub(crate) refuse: Vec<Need>,
    /// Credits are counted instead of unlimited.
    pub(crate) counts: bool,
    /// Writing into receives fails.
    pub(crate) broken_receives: bool,
    /// So many atomics have no answer yet.
    pub(crate) slow_atomics: u32,
    /// Keys that may be invalidated.
    pub(crate) invalidatable: Vec<Rkey>,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len], ..Self::default() }
    }

    pub(crate) fn range(&self, va: u64, len: u32) -> std::ops::Range<usize> {
        let start = (va - BASE) as usize;
        start..start + len as usize
    }

    pub(crate) fn post(&mut self, id: u64, room: usize) {
        self.posted.push_back((id, room));
    }

    /// Puts payload where a checked request said.
    pub(crate) fn write(&mut self, va: u64, payload: &[u8]) {
        let range = self.range(va, payload.len() as u32);
        self.bytes[range].copy_from_slice(payload);
    }

    pub(crate) fn scatter(&mut self, id: u64, offset: u32, payload: &[u8]) {
        let start = offset as usize;
        self.taken.get_mut(&id).expect("the receive is taken")[start..start + payload.len()]
            .copy_from_slice(payload);
    }
}

/// The value that an atomic writes.
pub(crate) fn apply(op: AtomicOp, original: u64) -> u64 {
    match op {
        AtomicOp::CompareSwap { compare, swap } if compare == original => swap,
        AtomicOp::CompareSwap { .. } => original,
        AtomicOp::FetchAdd { add } => original.wrapping_add(add),
        // These hosts see no payload: as if no bit took part.
        AtomicOp::Extended { .. } => original,
    }
}

impl Host for Memory {
    fn allows(&self, need: Need) -> bool {
        !self.refuse.contains(&need)
    }

    fn receive(&mut self) -> Result<Option<Receive>, Denied> {
        Ok(self.posted.front().map(|&(id, room)| Receive { id, room: room as u64 }))
    }

    fn take_receive(&mut self, id: u64) {
        let (front, room) = self.posted.pop_front().expect("a receive is posted");
        assert_eq!(front, id, "receives are taken in order");
        assert!(self.taken.insert(id, vec![0xee; room]).is_none(), "receive {id} taken twice");
    }

    fn check_receive(&mut self, _id: u64, _offset: u32, _len: u32) -> Result<(), Denied> {
        if self.broken_receives { Err(Denied) } else { Ok(()) }
    }

    fn check_rkey(&mut self, rkey: Rkey, va: u64, len: u32, _need: Need) -> Result<(), Denied> {
        assert_ne!(len, 0, "a request of no bytes needs no key");
        let end = va.checked_sub(BASE).and_then(|start| start.checked_add(u64::from(len)));
        let inside = end.is_some_and(|end| end <= self.bytes.len() as u64);
        if rkey == RKEY && inside && !self.revoked { Ok(()) } else { Err(Denied) }
    }

    fn check_invalidate(&mut self, rkey: Rkey) -> Result<(), Denied> {
        if self.invalidatable.contains(&rkey) { Ok(()) } else { Err(Denied) }
    }

    fn atomic(&mut self, atomic: &Atomic) -> Result<Option<u64>, Denied> {
        if self.slow_atomics > 0 {
            self.slow_atomics -= 1;
            return Ok(None);
        }
        self.atomics += 1;
        let range = self.range(atomic.va, 8);
        let original = u64::from_le_bytes(self.bytes[range.clone()].try_into().expect("8 bytes"));
        self.bytes[range].copy_from_slice(&apply(atomic.op, original).to_le_bytes());
        Ok(Some(original))
    }

    fn receives_left(&self) -> Option<u32> {
        self.counts.then_some(self.posted.len() as u32)
    }
}
