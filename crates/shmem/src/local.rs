//! The own memory, and that of other ranks where it is mapped here.

use crate::{MOST_ALIGN, ShmemError};
use rand::Rng;
use std::time::{Duration, Instant};
use warpverbs_gpu::{Arena, ArenaError, Buffer, Gpu, GpuError, Place, Segment};
use warpverbs_peer::{
    Attached, Decision, Exporter, Identity, Introduction, Reason, Route, Ticket, attach, read_back,
    write_word,
};

/// The heap begins with this many bytes for its own use, and 8 more for each rank: a word in which
/// that rank probes its mapping.
const PROBES: u64 = 64;

/// Bytes at the start of the heap that are not given out.
pub(crate) fn reserved(world: u32) -> u64 {
    (PROBES + 8 * u64::from(world)).next_multiple_of(4096)
}

/// The own memory.
enum Own {
    /// In segments, which other ranks of this machine map; the arena has theirs as well.
    Shared { arena: Arena, segments: Vec<Segment>, tickets: Vec<Ticket> },
    /// One buffer that nobody else maps.
    Plain(Option<Buffer>),
}

/// All memory of the heap that this rank's kernels load from and store to.
pub(crate) struct Local {
    rank: u32,
    identity: Identity,
    exporter: Exporter,
    /// From one rank's memory to the next.
    stride: u64,
    /// The place of each rank in the arena; None if it is on another machine.
    slots: Vec<Option<u64>>,
    introductions: Vec<Introduction>,
    /// Why the memory of each rank is not shared, if it is not.
    plain: Vec<Option<Reason>>,
    own: Own,
    /// Addresses for ranks that came back, whose places above may still be in use.
    apart: Vec<Option<Arena>>,
    /// Segments by rank; None for a rank that is not mapped and for this one.
    pub(crate) mapped: Vec<Option<Vec<Segment>>>,
}

impl Local {
    /// Reserves addresses for all ranks of this machine, `stride` bytes for each, unless `plain` says
    /// why memory of this rank is not shared.
    pub(crate) fn new(
        gpu: &dyn Gpu,
        rank: u32,
        stride: u64,
        plain: Vec<Option<Reason>>,
        exporter: Exporter,
        introductions: Vec<Introduction>,
    ) -> Result<Self, ShmemError> {
        let identity = introductions[rank as usize].identity.clone();
        let mut count = 0;
        let slots: Vec<_> = introductions
            .iter()
            .map(|peer| {
                let place = identity.may_share(&peer.identity).is_ok().then_some(count);
                count += u64::from(place.is_some());
                place
            })
            .collect();
        let ranks = count.max(1);
        let own = if plain[rank as usize].is_some() {
            Own::Plain(None)
        } else {
            let arena = gpu.arena(ranks.saturating_mul(stride));
            let arena =
                arena.map_err(|cause| ShmemError::Addresses { ranks, max_size: stride, cause })?;
            Own::Shared { arena, segments: Vec::new(), tickets: Vec::new() }
        };
        let mapped = introductions.iter().map(|_| None).collect();
        let apart = vec![None; introductions.len()];
        Ok(Self {
            rank,
            identity,
            exporter,
            stride,
            slots,
            introductions,
            plain,
            own,
            apart,
            mapped,
        })
    }

    fn offset(&self, rank: usize) -> u64 {
        self.slots.get(rank).copied().flatten().unwrap_or(0) * self.stride
    }

    /// Commits `[at, at + len)` of this rank's memory. The ticket lets other ranks map it; there is
    /// none for memory that is not shared.
    pub(crate) fn commit(
        &mut self,
        gpu: &dyn Gpu,
        at: u64,
        len: u64,
    ) -> Result<Option<Ticket>, ShmemError> {
        let offset = self.offset(self.rank as usize) + at;
        match &mut self.own {
            Own::Shared { arena, segments, tickets } => {
                let segment = arena.commit(offset, len)?;
                let ticket = self.exporter.offer(segment.export()?, len);
                let ticket = ticket.map_err(ShmemError::Descriptors)?;
                segments.push(segment);
                tickets.push(ticket.clone());
                Ok(Some(ticket))
            }
            Own::Plain(memory) => {
                *memory = Some(aligned(gpu, len)?);
                Ok(None)
            }
        }
    }

    /// Releases the segments from number `index` on, and those of other ranks beside them.
    pub(crate) fn give_up(&mut self, index: usize) {
        if let Own::Shared { segments, tickets, .. } = &mut self.own {
            segments.truncate(index);
            for ticket in tickets.drain(index.min(tickets.len())..) {
                self.exporter.withdraw(&ticket);
            }
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
        ticket: Option<&Ticket>,
        deadline: Instant,
    ) -> Result<Attached, Vec<Reason>> {
        match (&self.own, ticket) {
            (Own::Shared { arena, .. }, Some(ticket)) => {
                let peer = &self.introductions[rank];
                let (arena, at) = match &self.apart[rank] {
                    Some(apart) => (apart, at),
                    None => (arena, self.offset(rank) + at),
                };
                attach(arena, at, &self.identity, peer, ticket, deadline)
            }
            _ => Err([rank, self.rank as usize].iter().filter_map(|&r| self.plain_of(r)).collect()),
        }
    }

    /// Unmaps a rank's memory, once nobody uses it.
    pub(crate) fn part_with(&mut self, rank: usize) {
        (self.mapped[rank], self.apart[rank]) = (None, None);
    }

    /// As [`Local::part_with`], where another rank did not find what a kernel here stored: it is reached by RDMA.
    pub(crate) fn unmap(&mut self, rank: usize, decision: &mut Decision, why: &str) {
        decision.route = Route::Rdma;
        decision.not_better.push(Reason::new("reading back what a kernel stored", why));
        self.part_with(rank);
    }

    /// Another process is this rank now.
    pub(crate) fn introduce(
        &mut self,
        gpu: &dyn Gpu,
        rank: usize,
        introduction: Introduction,
        plain: Option<Reason>,
    ) -> Result<(), ShmemError> {
        if matches!(self.own, Own::Shared { .. }) && plain.is_none() {
            let addresses =
                |cause| ShmemError::Addresses { ranks: 1, max_size: self.stride, cause };
            self.apart[rank] = Some(gpu.arena(self.stride).map_err(addresses)?);
        }
        (self.introductions[rank], self.plain[rank]) = (introduction, plain);
        Ok(())
    }

    /// Introductions of all ranks, and why their memory is not shared, if it is not.
    pub(crate) fn of_all(&self) -> (&[Introduction], &[Option<Reason>]) {
        (&self.introductions, &self.plain)
    }

    /// From one rank's memory to the next.
    pub(crate) fn stride(&self) -> u64 {
        self.stride
    }

    /// By which other ranks map the first segment.
    pub(crate) fn first_ticket(&self) -> Option<Ticket> {
        match &self.own {
            Own::Shared { tickets, .. } => tickets.first().cloned(),
            Own::Plain(_) => None,
        }
    }

    /// Why a rank's memory is not shared, if it is not.
    pub(crate) fn plain_of(&self, rank: usize) -> Option<Reason> {
        let why = self.plain[rank].as_ref()?;
        Some(Reason::new(format!("memory of rank {rank}"), why))
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
        let own = self.newest().ok_or("no memory")?;
        read_back(gpu, own, at, value).map_err(|error| error.to_string())
    }

    /// The own segment that was committed last.
    pub(crate) fn newest(&self) -> Option<&Buffer> {
        match &self.own {
            Own::Shared { segments, .. } => segments.last().map(Segment::buffer),
            Own::Plain(memory) => memory.as_ref(),
        }
    }

    /// How many segments this rank has.
    pub(crate) fn segments(&self) -> usize {
        match &self.own {
            Own::Shared { segments, .. } => segments.len(),
            Own::Plain(memory) => usize::from(memory.is_some()),
        }
    }

    /// All of the own memory.
    pub(crate) fn memory(&self) -> Result<Buffer, ShmemError> {
        match &self.own {
            Own::Shared { arena, segments, .. } => Ok(arena.join(segments)?),
            Own::Plain(Some(memory)) => Ok(memory.clone()),
            Own::Plain(None) => Err(ArenaError::Apart { index: 0 }.into()),
        }
    }

    /// All of another rank's memory, if it is mapped here.
    pub(crate) fn memory_of(&self, rank: usize) -> Result<Option<Buffer>, ShmemError> {
        Ok(match (&self.own, &self.mapped[rank]) {
            (Own::Shared { arena, .. }, Some(mapped)) => {
                Some(self.apart[rank].as_ref().unwrap_or(arena).join(mapped)?)
            }
            _ => None,
        })
    }

    /// Bytes of addresses that are reserved.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        match &self.own {
            Own::Shared { arena, .. } => arena.len(),
            Own::Plain(_) => 0,
        }
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

/// Memory of the device's ordinary allocator, at a multiple of [`MOST_ALIGN`] as an arena's is.
fn aligned(gpu: &dyn Gpu, len: u64) -> Result<Buffer, ShmemError> {
    let too_large = |_| ShmemError::Arena(ArenaError::TooLarge { len, total: usize::MAX as u64 });
    let len = usize::try_from(len).map_err(too_large)?;
    let all = gpu.alloc(len.saturating_add(MOST_ALIGN as usize), Place::Device)?;
    let start = all.kernel_addr().next_multiple_of(MOST_ALIGN) - all.kernel_addr();
    Ok(all.slice(start, len).map_err(GpuError::from)?)
}
