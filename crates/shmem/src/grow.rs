//! A heap that grows: every rank adds a segment and attaches the others', or none does.

use crate::agreement::History;
use crate::heap::Parts;
use crate::steps::Steps;
use crate::{Heap, ShmemError};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use warpverbs_peer::{Reason, Ticket};
use warpverbs_rendezvous::World;

/// The message of a rank that has added a segment.
#[derive(Serialize, Deserialize)]
struct Grown {
    history: History,
    ticket: Option<Ticket>,
    /// The key of the new segment, where there is RDMA.
    region: Option<Vec<u8>>,
}

impl Heap {
    /// Doubles the heap of every rank; waits for all ranks. Kernels may run meanwhile: they see what
    /// they were given, and later launches are given [`Heap::device`] anew.
    ///
    /// # Errors
    /// The same on all ranks, if they all still run. The heap is then as it was before.
    pub fn grow(&mut self, world: &mut World) -> Result<(), ShmemError> {
        // On all ranks, which have the same.
        if self.parts.size >= self.limit {
            let (size, parts) = (self.parts.size, &self.parts);
            let plain = (0..self.world() as usize).find_map(|rank| parts.local.plain_of(rank));
            let why = plain.map_or_else(|| "max_size".to_owned(), |why| why.to_string());
            return Err(ShmemError::Full { size, why });
        }
        let before = self.parts.local.segments();
        let grown = self.try_grow(world, before);
        if grown.is_err() {
            self.parts.local.give_up(before);
            if let Some(remote) = &mut self.parts.remote {
                remote.give_up(before);
            }
        }
        grown
    }

    fn try_grow(&mut self, world: &mut World, index: usize) -> Result<(), ShmemError> {
        let mut steps = Steps::new(world, Some(self.parts.id), self.parts.config.deadline);
        let all = steps.end("grow: offer", self.parts.offer(self.places.history()))?;
        self.places.agree((0..).zip(all.iter().map(|grown| &grown.history)))?;
        let attached = self.parts.attach(&all, index);
        steps.end("grow: attach", attached)?;
        let size = 2 * self.parts.size;
        let uploaded = steps.keep("grow: switch", self.parts.upload(size))?;
        self.switch(uploaded);
        self.enlarge(size);
        self.times.append(&mut steps.times);
        Ok(())
    }
}

impl Parts {
    /// Adds a segment.
    fn offer(&mut self, history: History) -> Result<Grown, ShmemError> {
        let ticket = self.local.commit(&*self.gpu, self.size, self.size)?;
        let newest = self.local.newest();
        let region = match (&mut self.remote, newest) {
            (Some(remote), Some(segment)) => Some(remote.register(segment)?),
            _ => None,
        };
        Ok(Grown { history, ticket, region })
    }

    /// Attaches those of the others.
    fn attach(&mut self, all: &[Grown], index: usize) -> Result<(), ShmemError> {
        // Other ranks wait for this step until the whole deadline.
        let deadline = Instant::now() + self.config.deadline / 2;
        for (rank, grown) in all.iter().enumerate() {
            if let (Some(remote), Some(region)) = (&mut self.remote, &grown.region) {
                remote.learn(rank, region)?;
            }
            if self.local.mapped[rank].is_none() {
                continue;
            }
            let attached = self.local.attach(rank, self.size, grown.ticket.as_ref(), deadline);
            let attached = attached.map_err(|why| ShmemError::Config {
                field: "segment",
                value: format!("{index} of rank {rank}"),
                expected: format!("one that is mapped as those before it: {}", Reason::list(&why)),
            })?;
            if let Some(mapped) = &mut self.local.mapped[rank] {
                mapped.push(attached.segment);
            }
        }
        Ok(())
    }
}
