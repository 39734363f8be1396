//! Ranks that leave a heap, and come back as processes that were started anew.
//!
//! A heap follows the members of its world. A rank that has left is not reached any more: its memory is
//! unmapped, its queue pairs are gone. One that comes back makes its part of the heap as all did at first,
//! by steps of the same names behind `return:`, with those that stayed; and reaches them, and they it,
//! by the routes of before.

use crate::create::{Hello, Making, Routes, Seen};
use crate::heap::Parts;
use crate::local::{Local, reserved};
use crate::remote::{Offer, Remote};
use crate::steps::Steps;
use crate::{Heap, HeapConfig, ShmemError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use warpverbs_gpu::Gpu;
use warpverbs_peer::{Decision, Introduction, Reason, Route};
use warpverbs_rendezvous::{Watch, World};
use warpverbs_transport::Device;

/// The first message of a member when a rank comes back.
#[derive(Serialize, Deserialize)]
struct Arrival {
    hello: Hello,
    /// Of a member that has the heap.
    facts: Option<Facts>,
}

/// The facts that a rank which comes back does not know.
#[derive(Serialize, Deserialize)]
struct Facts {
    id: u64,
    size: u64,
    limit: u64,
    log_segment: u8,
    routes: Routes,
    introductions: Vec<Introduction>,
    plain: Vec<Option<Reason>>,
}

impl Heap {
    /// Follows the world's members after [`World::regroup`]; every member calls it, and each that has come
    /// back [`Heap::create`]. No kernel of this rank may use the heap meanwhile. Alarms and the first
    /// fault are cleared. Launches that are given [`Heap::device`] from then on reach ranks that came
    /// back; a rank that is away is `no_peer` for them.
    ///
    /// A rank that came back has made none of the calls that came before: it makes them again, in the same
    /// order, and waits for nobody in them until it calls [`Heap::agree`] together with the others.
    ///
    /// # Errors
    /// The same on all members that still run, if a rank comes back that reaches the others by other routes
    /// than before, or to a heap that has grown or has registered buffers. It is then away.
    pub fn regroup(&mut self, world: &mut World) -> Result<(), ShmemError> {
        let (members, newcomers) = (world.members().to_vec(), world.view().newcomers());
        for rank in 0..self.world() {
            if !members.contains(&rank) || newcomers.contains(&rank) {
                self.parts.part_with(rank as usize);
            }
        }
        // Gives up what the old tables kept alive.
        self.switch(self.parts.upload(self.parts.size)?);
        if !newcomers.is_empty() {
            let mut steps = Steps::new(world, None, self.parts.config.deadline);
            let met = self.parts.receive(&mut steps, &newcomers);
            let uploaded = met.and_then(|decisions| {
                let uploaded = self.parts.upload(self.parts.size);
                Ok((steps.keep_of_members("return: switch", uploaded)?, decisions))
            });
            match uploaded {
                Ok((uploaded, decisions)) => {
                    self.switch(uploaded);
                    self.decide(decisions);
                }
                Err(error) => {
                    newcomers.iter().for_each(|rank| self.parts.part_with(*rank as usize));
                    return Err(error);
                }
            }
        }
        self.parts.gpu.zero(&self.parts.state)?;
        // Before alarms of the last view are taken back, its watch has ended.
        let watched = self.watch.take().is_some();
        for rank in 0..self.world() {
            self.parts.alarms.lose(rank, !members.contains(&rank))?;
        }
        self.parts.alarms.abort(false)?;
        if watched { self.watch(world) } else { Ok(()) }
    }

    /// From now on, a rank that is lost ends waits of this rank's kernels for it, and members that regroup
    /// end all: the world is watched by a thread.
    ///
    /// # Errors
    /// No connection to the store.
    pub fn watch(&mut self, world: &World) -> Result<(), ShmemError> {
        let alarms = self.parts.alarms.clone();
        self.watch = Some(Watch::start(world, move |news| alarms.hear(news))?);
        Ok(())
    }

    /// [`Heap::create`] of a rank that comes back.
    pub(crate) fn come_back(
        world: &mut World,
        gpu: &Arc<dyn Gpu>,
        device: Option<&Device>,
        config: &HeapConfig,
    ) -> Result<Self, ShmemError> {
        let (rank, size, newcomers) = (world.rank(), world.world_size(), world.view().newcomers());
        let mut steps = Steps::new(world, None, config.deadline);
        let prepared = config.clone().with_env().and_then(|(config, overrides)| {
            let making = Making { gpu, device, config, overrides, rank, world: size };
            let (exporter, hello) = making.introduce()?;
            Ok(((making, exporter), Arrival { hello, facts: None }))
        });
        let ((making, exporter), arrivals) =
            steps.end_with_members("return: introduce", prepared)?;
        let facts = agree_to(&arrivals)?;
        let mut introductions = facts.introductions.clone();
        let mut plain = facts.plain.clone();
        for (rank, arrival) in arrivals.iter().enumerate() {
            if let Some(Arrival { hello, .. }) = arrival {
                introductions[rank] = hello.introduction.clone();
                plain[rank] = hello.plain.clone();
            }
        }
        let local = Local::new(&**gpu, rank, facts.limit, plain, exporter, introductions);
        let local = local.and_then(|mut local| {
            local.commit(&**gpu, 0, facts.size)?;
            Ok(local)
        });
        let mut parts = match local.and_then(|local| making.parts(facts, local)) {
            Ok(parts) => parts,
            Err(error) => return steps.keep_of_members("return: offer", Err(error)),
        };
        let met = parts.meet(&mut steps, &newcomers, device)?;
        let (overrides, limit) = (making.overrides, facts.limit);
        let own = || Decision::best(Route::Own);
        let decisions = met.into_iter().map(|decision| decision.unwrap_or_else(own)).collect();
        let heap = Heap::new(parts, reserved(size), limit, overrides, decisions);
        let mut heap = steps.keep_of_members("return: switch", heap)?;
        heap.replays = true;
        for rank in 0..size {
            heap.parts.alarms.lose(rank, arrivals[rank as usize].is_none())?;
        }
        Ok(heap)
    }
}

/// The settings of all members are the same. The facts of those that have the heap.
fn agree_to(arrivals: &[Option<Arrival>]) -> Result<&Facts, ShmemError> {
    let here = (0..).zip(arrivals);
    let hellos: Vec<_> =
        here.filter_map(|(rank, arrival)| Some((rank, &arrival.as_ref()?.hello))).collect();
    Hello::agree(&hellos)?;
    let facts = arrivals.iter().flatten().find_map(|arrival| arrival.facts.as_ref());
    facts.ok_or_else(|| ShmemError::Config {
        field: "members",
        value: "ranks that come back alone".to_owned(),
        expected: "a rank that has the heap".to_owned(),
    })
}

impl Making<'_> {
    /// The heap of the others, of which this rank reaches nobody so far.
    fn parts(&self, facts: &Facts, local: Local) -> Result<Parts, ShmemError> {
        let sizes = (facts.id, facts.size, facts.log_segment);
        Parts::new(self, sizes, local, facts.routes.clone(), None)
    }
}

impl Parts {
    /// Reaches a rank no more.
    fn part_with(&mut self, rank: usize) {
        self.local.part_with(rank);
        if let Some(remote) = &mut self.remote {
            remote.part_with(rank);
        }
        self.windows.iter_mut().for_each(|window| window.part_with(rank));
    }

    /// By a member that has the heap.
    fn receive(
        &mut self,
        steps: &mut Steps<'_>,
        newcomers: &[u32],
    ) -> Result<Vec<Option<Decision>>, ShmemError> {
        let arrival = self.arrival();
        let arrivals = steps.end_of_members("return: introduce", arrival)?;
        agree_to(&arrivals)?;
        for &rank in newcomers {
            if let Some(Some(Arrival { hello, .. })) = arrivals.get(rank as usize) {
                let (introduction, plain) = (hello.introduction.clone(), hello.plain.clone());
                self.local.introduce(&*self.gpu, rank as usize, introduction, plain)?;
            }
        }
        self.meet(steps, newcomers, None)
    }

    fn arrival(&self) -> Result<Arrival, ShmemError> {
        let refused = |value: &str| ShmemError::Config {
            field: "heap",
            value: value.to_owned(),
            expected: "one of one segment without registered buffers, for a rank that comes back"
                .to_owned(),
        };
        if self.local.segments() != 1 {
            return Err(refused("one that has grown"));
        }
        if !self.windows.is_empty() {
            return Err(refused("one with registered buffers"));
        }
        let own = self.rank as usize;
        let (introductions, plain) = self.local.of_all();
        let hello = Hello::new(
            &self.config,
            (self.config.sizes(1)?, 1),
            plain[own].clone(),
            introductions[own].clone(),
        );
        let facts = Facts {
            id: self.id,
            size: self.size,
            limit: self.local.stride(),
            log_segment: self.log_segment,
            routes: self.routes.clone(),
            introductions: introductions.to_vec(),
            plain: plain.to_vec(),
        };
        Ok(Arrival { hello, facts: Some(facts) })
    }

    /// By all members: those pairs of which one comes back. For each rank that was met, how it is reached.
    fn meet(
        &mut self,
        steps: &mut Steps<'_>,
        newcomers: &[u32],
        device: Option<&Device>,
    ) -> Result<Vec<Option<Decision>>, ShmemError> {
        let own = self.rank as usize;
        let is_new = |rank: usize| newcomers.contains(&(rank as u32));
        let tickets = steps.end_of_members("return: offer", Ok(self.local.first_ticket()))?;
        let met: Vec<bool> = (0..tickets.len())
            .map(|rank| rank != own && tickets[rank].is_some() && (is_new(rank) || is_new(own)))
            .collect();
        let gpu = self.gpu.clone();
        let (config, rank) = (self.config.clone(), self.rank);
        let world = met.len() as u32;
        let making = Making { gpu: &gpu, device, config, overrides: vec![], rank, world };
        let tickets: Vec<_> = tickets.iter().map(|ticket| ticket.as_ref()?.as_ref()).collect();
        let (mut decisions, words) = making.attach(&mut self.local, &tickets, |rank| met[rank]);
        let words = steps.end_of_members("return: attach", Ok(words))?;
        let seen = making.read_back(&self.local, words.iter().map(Option::as_ref));
        let seen = steps.end_of_members("return: probe", Ok(seen))?;
        let routed = self.check_routes(&seen, &mut decisions);
        let offered = routed.and_then(|()| self.new_queue_pairs(&making, &met));
        let offers = steps.end_of_members("return: register", offered)?;
        let offers: Vec<_> = offers.into_iter().map(Option::flatten).collect();
        let connected = match &mut self.remote {
            Some(remote) => {
                let here = is_new(own).then_some(own);
                let peers = (0..met.len()).filter(|&rank| met[rank] || here == Some(rank));
                remote.connect(&offers, &peers.collect::<Vec<_>>())
            }
            None => Ok(()),
        };
        steps.end_of_members("return: connect", connected)?;
        Ok(decisions)
    }

    /// Every rank that was met is reached as before.
    fn check_routes(
        &mut self,
        seen: &[Option<Vec<Seen>>],
        decisions: &mut [Option<Decision>],
    ) -> Result<(), ShmemError> {
        let own = self.rank as usize;
        for (rank, decision) in decisions.iter_mut().enumerate() {
            let Some(decision) = decision else { continue };
            let told = seen[rank].as_ref().and_then(|seen| seen.get(own)).cloned().flatten();
            if let Some(Err(why)) = &told {
                self.local.unmap(rank, decision, why);
            }
            let name = |direct| if direct { "loads and stores" } else { "RDMA" };
            let (found, expected) =
                (matches!(told, Some(Ok(()))), self.routes.is_direct(own, rank));
            if found != expected {
                return Err(ShmemError::Route {
                    rank: own as u32,
                    to: rank as u32,
                    found: name(found),
                    expected: name(expected),
                    why: Reason::list(&decision.not_better),
                });
            }
        }
        Ok(())
    }

    /// Queue pairs to the ranks that were met, where there were some before.
    fn new_queue_pairs(
        &mut self,
        making: &Making<'_>,
        met: &[bool],
    ) -> Result<Option<Offer>, ShmemError> {
        let own = self.rank as usize;
        let is_new = self.remote.is_none();
        let wanted = (0..met.len()).map(|peer| {
            let needed = self.config.queue_pairs || self.routes.needs_queue_pairs(own, peer);
            needed && (met[peer] || (is_new && peer == own))
        });
        let wanted: Vec<_> = wanted.collect();
        match &mut self.remote {
            Some(remote) => {
                remote.renew(&self.gpu, &wanted, (self.config.qps, self.config.timeout))?;
            }
            None => self.remote = making.remote(&self.local, &wanted)?,
        }
        Ok(self.remote.as_ref().map(Remote::offer))
    }
}
