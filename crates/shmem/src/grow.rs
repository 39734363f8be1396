//! A heap that grows: every rank adds a segment and attaches the others', or none does.

use crate::agreement::History;
use crate::heap::Tables;
use crate::steps::Steps;
use crate::{Heap, ShmemError};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use warpverbs_peer::{Reason, Ticket};
use warpverbs_rendezvous::World;

/// What a rank has for the others.
#[derive(Serialize, Deserialize)]
struct Grown {
    history: History,
    ticket: Ticket,
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
        if self.size >= self.limit {
            return Err(ShmemError::Full { size: self.size });
        }
        let before = self.local.segments().len();
        let grown = self.try_grow(world, before);
        if grown.is_err() {
            self.local.give_up(before);
            if let Some(remote) = &mut self.remote {
                remote.give_up(before);
            }
        }
        grown
    }

    fn try_grow(&mut self, world: &mut World, index: usize) -> Result<(), ShmemError> {
        let mut steps = Steps::new(world, Some(self.id), self.config.deadline);
        let all = steps.end("grow: offer", self.offer())?;
        let histories: Vec<_> = all.iter().map(|grown| grown.history.clone()).collect();
        self.agreed(&histories)?;
        let attached = self.attach(&all, index);
        steps.end("grow: attach", attached)?;
        let size = 2 * self.size;
        let uploaded = Tables { size, ..self.tables() }.upload(&*self.gpu);
        let uploaded = uploaded.map(|uploaded| (uploaded, ()));
        let ((exported, own), _) = steps.end_with("grow: switch", uploaded)?;
        (self.exported, self.own) = (exported, own);
        self.enlarge(size);
        self.times.append(&mut steps.times);
        Ok(())
    }

    fn offer(&mut self) -> Result<Grown, ShmemError> {
        let ticket = self.local.commit(self.size, self.size)?;
        let newest = self.local.segments().last();
        let region = match (&mut self.remote, newest) {
            (Some(remote), Some(segment)) => Some(remote.register(segment)?),
            _ => None,
        };
        Ok(Grown { history: self.history.clone(), ticket, region })
    }

    fn attach(&mut self, all: &[Grown], index: usize) -> Result<(), ShmemError> {
        // The others wait twice as long.
        let deadline = Instant::now() + self.config.deadline / 2;
        for (rank, grown) in all.iter().enumerate() {
            if let (Some(remote), Some(region)) = (&mut self.remote, &grown.region) {
                remote.learn(rank, region)?;
            }
            if self.local.mapped[rank].is_none() {
                continue;
            }
            let attached = self.local.attach(rank, self.size, &grown.ticket, deadline);
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
