//! The own memory, and that of other ranks where it is mapped here.

use crate::ShmemError;
use rand::Rng;
use std::time::{Duration, Instant};
use warpverbs_gpu::{Arena, Buffer, Gpu, Segment};
use warpverbs_peer::{
    Attached, Exporter, Identity, Introduction, Reason, Ticket, attach, read_back, write_word,
};

/// The heap begins with this many bytes for its own use, and 8 more for each rank: a word in which
/// that rank probes its mapping.
const PROBES: u64 = 64;

/// Bytes at the start of the heap that are not given out.
pub(crate) fn reserved(world: u32) -> u64 {
    (PROBES + 8 * u64::from(world)).next_multiple_of(4096)
}

/// All memory of the heap that this rank's kernels reach by loads and stores.
pub(crate) struct Local {
    rank: u32,
    own: Identity,
    exporter: Exporter,
    arena: Arena,
    /// From one rank's memory to the next.
    stride: u64,
    /// The place of each rank in the arena; None if it is on another machine.
    slots: Vec<Option<u64>>,
    introductions: Vec<Introduction>,
    segments: Vec<Segment>,
    tickets: Vec<Ticket>,
    /// Segments by rank; None for the own one as well.
    pub(crate) mapped: Vec<Option<Vec<Segment>>>,
}

impl Local {
    /// Reserves addresses for all ranks of this machine, `stride` bytes for each.
    pub(crate) fn new(
        gpu: &dyn Gpu,
        rank: u32,
        stride: u64,
        exporter: Exporter,
        introductions: Vec<Introduction>,
    ) -> Result<Self, ShmemError> {
        let own = introductions[rank as usize].identity.clone();
        let mut count = 0;
        let slots: Vec<_> = introductions
            .iter()
            .map(|peer| {
                let place = own.may_share(&peer.identity).is_ok().then_some(count);
                count += u64::from(place.is_some());
                place
            })
            .collect();
        let ranks = count.max(1);
        let arena = gpu
            .arena(ranks.saturating_mul(stride))
            .map_err(|cause| ShmemError::Addresses { ranks, max_size: stride, cause })?;
        let mapped = introductions.iter().map(|_| None).collect();
        let (segments, tickets) = (Vec::new(), Vec::new());
        Ok(Self {
            rank,
            own,
            exporter,
            arena,
            stride,
            slots,
            introductions,
            segments,
            tickets,
            mapped,
        })
    }

    fn offset(&self, rank: usize) -> u64 {
        self.slots.get(rank).copied().flatten().unwrap_or(0) * self.stride
    }

    /// Commits `[at, at + len)` of the own heap, to be fetched by the others.
    pub(crate) fn commit(&mut self, at: u64, len: u64) -> Result<Ticket, ShmemError> {
        let segment = self.arena.commit(self.offset(self.rank as usize) + at, len)?;
        let fd = segment.export()?;
        let ticket = self.exporter.offer(fd, len).map_err(ShmemError::Descriptors)?;
        self.segments.push(segment);
        self.tickets.push(ticket.clone());
        Ok(ticket)
    }

    /// Gives up the segment that was committed last, and what was attached beside it.
    pub(crate) fn give_up(&mut self, index: usize) {
        self.segments.truncate(index);
        for ticket in self.tickets.drain(index..) {
            self.exporter.withdraw(&ticket);
        }
        for mapped in self.mapped.iter_mut().flatten() {
            mapped.truncate(index);
        }
    }

    /// Maps the segment at `at` of another rank.
    pub(crate) fn attach(
        &self,
        rank: usize,
        at: u64,
        ticket: &Ticket,
        deadline: Instant,
    ) -> Result<Attached, Vec<Reason>> {
        let peer = &self.introductions[rank];
        attach(&self.arena, self.offset(rank) + at, &self.own, peer, ticket, deadline)
    }

    /// Writes a random word into another rank's memory, and returns it.
    pub(crate) fn probe(
        &self,
        gpu: &dyn Gpu,
        attached: &Segment,
        timeout: Duration,
    ) -> Result<u64, Reason> {
        let value = rand::rng().next_u64();
        let at = PROBES + 8 * u64::from(self.rank);
        write_word(gpu, attached.buffer(), at, value, timeout)
            .map_err(|error| Reason::new("a store by a kernel", error))?;
        Ok(value)
    }

    /// Whether the word that `rank` wrote is in the own memory.
    pub(crate) fn probed(&self, gpu: &dyn Gpu, rank: u32, value: u64) -> Result<(), String> {
        let at = PROBES + 8 * u64::from(rank);
        read_back(gpu, self.segments[0].buffer(), at, value).map_err(|error| error.to_string())
    }

    /// The own segments.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// All of the own memory.
    pub(crate) fn memory(&self) -> Result<Buffer, ShmemError> {
        Ok(self.arena.join(&self.segments)?)
    }

    /// All of another rank's memory, if it is mapped here.
    pub(crate) fn memory_of(&self, rank: usize) -> Result<Option<Buffer>, ShmemError> {
        let mapped = self.mapped[rank].as_ref();
        Ok(mapped.map(|mapped| self.arena.join(mapped)).transpose()?)
    }

    /// First address of the arena, and its length in bytes.
    pub(crate) fn arena(&self) -> (u64, u64) {
        (self.arena.addr(), self.arena.len())
    }

    /// Offers memory of this process.
    pub(crate) fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    pub(crate) fn introduction(&self, rank: usize) -> &Introduction {
        &self.introductions[rank]
    }

    pub(crate) fn identity(&self, rank: usize) -> &Identity {
        &self.introductions[rank].identity
    }
}
