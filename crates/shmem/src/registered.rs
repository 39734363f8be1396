//! Buffers of the user's own that kernels of other ranks reach: another library's tensors, memory
//! that was there before the heap.
//!
//! Each rank registers one of the same length. How a rank reaches another's is decided for each
//! buffer: by loads and stores if the heap is reached so and the memory can be mapped, else through
//! the heap's queue pairs.

use crate::agreement::History;
use crate::export::{ExportWindow, WindowRank};
use crate::heap::Parts;
use crate::steps::{Steps, agree};
use crate::{Heap, ShmemError};
use serde::{Deserialize, Serialize};
use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;
use warpverbs_gpu::{Buffer, KernelPtr, Remote};
use warpverbs_peer::descriptor::Trust;
use warpverbs_peer::{Decision, Exported, RangeOffer, Reason, RemoteRange, Route, reach};
use warpverbs_rendezvous::World;

/// A buffer that all ranks of a heap have registered, each its own.
#[derive(Clone, Debug)]
pub struct Registered {
    heap: u64,
    id: u64,
    buffer: Buffer,
    routes: Vec<Decision>,
}

impl Registered {
    /// The own one. Kernels name a place in any rank's by its address in this one.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// How each rank's is reached, and why not better.
    pub fn routes(&self) -> &[Decision] {
        &self.routes
    }
}

/// The heap's record of a registered buffer.
pub(crate) struct Window {
    id: u64,
    // Withdrawn before it is unregistered.
    exported: Exported,
    /// None for oneself.
    ranges: Vec<Option<RemoteRange>>,
}

impl Window {
    /// A rank's buffer is not reached any more.
    pub(crate) fn part_with(&mut self, rank: usize) {
        self.ranges[rank] = None;
    }

    pub(crate) fn export(&self) -> ExportWindow {
        let ranks = self.ranges.iter().map(|range| {
            let Some(range) = range else { return WindowRank::default() };
            WindowRank {
                direct: range.mapped().map(KernelPtr::new),
                rdma: range.region().map(Remote::from),
            }
        });
        ExportWindow {
            own: KernelPtr::new(self.exported.buffer()),
            near: self.exported.region().map(|region| region.local().into()),
            ranks: ranks.collect(),
        }
    }
}

/// The message of a rank that registers a buffer.
#[derive(Serialize, Deserialize)]
struct Offer {
    history: History,
    range: RangeOffer,
}

impl Heap {
    /// Makes a buffer of this rank usable by the calls of all ranks' kernels: `put`, `get`,
    /// `put_value` and the payload of `put_signal`. Every rank registers one of the same length; waits
    /// for all ranks. Any memory that kernels of this device reach will do, if it can be mapped
    /// elsewhere (`warpverbs_peer` says which) or the heap has queue pairs to the ranks that need them
    /// ([`HeapConfig::queue_pairs`](crate::HeapConfig::queue_pairs)). Signals and atomics stay in the heap.
    ///
    /// Launches that are given [`Heap::device`] from then on reach it.
    ///
    /// # Errors
    /// The same on all ranks: lengths that differ, or a rank that cannot reach another, and why. Nothing is
    /// registered then.
    #[track_caller]
    pub fn register(
        &mut self,
        world: &mut World,
        buffer: &Buffer,
    ) -> Result<Registered, ShmemError> {
        // Lengths are compared below, and may be put right.
        self.places.note("register a buffer".to_owned(), Location::caller());
        let id = self.next_window;
        self.next_window += 1;
        let mut steps = Steps::new(world, Some(self.parts.id), self.parts.config.deadline);
        let offered = self.parts.offer_buffer(buffer).map(|exported| {
            let offer = Offer { history: self.places.history(), range: exported.offer().clone() };
            (exported, offer)
        });
        let (exported, offers) = steps.end_with("register buffer: offer", offered)?;
        self.places.agree((0..).zip(offers.iter().map(|offer| &offer.history)))?;
        agree("length of the buffer", (0..).zip(offers.iter().map(|offer| offer.range.len())))?;
        let reached = self.parts.reach_buffers(&offers, self.decisions());
        let uploaded = reached.and_then(|ranges| {
            self.parts.windows.push(Window { id, exported, ranges });
            self.parts.upload(self.parts.size)
        });
        match steps.keep("register buffer: switch", uploaded) {
            Ok(uploaded) => self.switch(uploaded),
            Err(error) => {
                self.parts.windows.retain(|window| window.id != id);
                return Err(error);
            }
        }
        let own = || Decision::best(Route::Own);
        let window = self.parts.windows.iter().find(|window| window.id == id);
        let ranges = window.map(|window| &*window.ranges).unwrap_or_default().iter();
        let routes = ranges.map(|range| range.as_ref().map_or_else(own, |r| r.decision().clone()));
        let (heap, routes) = (self.parts.id, routes.collect());
        Ok(Registered { heap, id, buffer: buffer.clone(), routes })
    }

    /// Ends what [`Heap::register`] began, on all ranks; waits for all of them. No kernel of any rank
    /// may use the others' buffers any more. The memory stays mapped here until the last launch that
    /// was given it has ended.
    ///
    /// # Errors
    /// It is of another heap, or is no longer registered.
    pub fn unregister(
        &mut self,
        world: &mut World,
        registered: Registered,
    ) -> Result<(), ShmemError> {
        let found = self.parts.windows.iter().position(|window| window.id == registered.id);
        let gone = || ShmemError::OtherHeap { offset: registered.buffer.kernel_addr() };
        let at = found.filter(|_| registered.heap == self.parts.id).ok_or_else(gone);
        let mut steps = Steps::new(world, Some(self.parts.id), self.parts.config.deadline);
        let at = steps.keep("unregister buffer", at)?;
        let window = self.parts.windows.remove(at);
        self.switch(self.parts.upload(self.parts.size)?);
        drop(window);
        Ok(())
    }
}

impl Parts {
    fn offer_buffer(&self, buffer: &Buffer) -> Result<Exported, ShmemError> {
        if buffer.is_empty() {
            let (field, value) = ("buffer", "0 bytes".to_owned());
            return Err(ShmemError::Config { field, value, expected: "1 byte or more".to_owned() });
        }
        let region = match &self.remote {
            Some(remote) => Some(Arc::new(remote.register_buffer(buffer)?)),
            None => None,
        };
        Ok(self.local.exporter().export(buffer.clone(), region))
    }

    fn reach_buffers(
        &self,
        offers: &[Offer],
        decisions: &[Decision],
    ) -> Result<Vec<Option<RemoteRange>>, ShmemError> {
        // Other ranks wait for this step until the whole deadline.
        let deadline = Instant::now() + self.config.deadline / 2;
        let own = self.local.identity(self.rank as usize);
        let mut ranges = Vec::with_capacity(offers.len());
        for (rank, offer) in offers.iter().enumerate() {
            if rank == self.rank as usize {
                ranges.push(None);
                continue;
            }
            let heap = &decisions[rank];
            let direct = match heap.route {
                // All ranks were started by one launch, and reach each other's memory by design.
                Route::Direct => Ok(Trust::Launch),
                _ => Err(Reason::new("loads and stores", format!("the heap: {}", heap.explain()))),
            };
            let peer = self.local.introduction(rank);
            let range = reach(&*self.gpu, own, peer, &offer.range, direct, deadline);
            let posts = self.remote.as_ref().is_some_and(|remote| remote.route(rank).is_some());
            if range.mapped().is_none() && !(posts && range.region().is_some()) {
                let lacks = if posts { "" } else { "; the heap has no queue pairs to it" };
                return Err(ShmemError::Config {
                    field: "buffer",
                    value: format!("of rank {rank}, for rank {}", self.rank),
                    expected: format!(
                        "one that is mapped or reached by RDMA: {}{lacks}",
                        range.decision().explain()
                    ),
                });
            }
            ranges.push(Some(range));
        }
        Ok(ranges)
    }
}
