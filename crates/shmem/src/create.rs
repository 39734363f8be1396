//! Making a heap: steps that all ranks take together.
//!
//! | step | what each rank does | what it sends to the others |
//! |---|---|---|
//! | introduce | starts its descriptor server | settings, identity, address |
//! | offer | reserves addresses, commits its memory | the ticket of its memory |
//! | attach | maps the other ranks' memory and writes a word into each by a kernel | the words |
//! | probe | reads the words back from its own memory | which of them it found |
//! | register | registers its memory with its NIC, makes queue pairs | keys and handles |
//! | connect | connects the queue pairs, makes what its kernels are given | that it is ready |
//!
//! After the fourth step all ranks know which mappings work. They all derive the same routes from
//! that, and take the last two steps or not together.

use crate::heap::Parts;
use crate::local::{Local, reserved};
use crate::remote::{Offer, Remote};
use crate::steps::{Steps, agree};
use crate::{Heap, HeapConfig, RoutePolicy, ShmemError};
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use warpverbs_gpu::Gpu;
use warpverbs_peer::{Decision, Exporter, Introduction, Reason, Route, Ticket, load_probe};
use warpverbs_rendezvous::World;
use warpverbs_transport::Device;

/// Version of the heap's layout and of the messages that create it.
const LAYOUT: &str = concat!("2 of warpverbs ", env!("CARGO_PKG_VERSION"));

/// The first message of a rank.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    layout: String,
    /// Requested size and largest size, and the least size of a segment on this device.
    pub(crate) sizes: (u64, u64),
    granule: u64,
    /// Why its memory is not shared, if it is not.
    pub(crate) plain: Option<Reason>,
    qps: u32,
    queue_pairs: bool,
    routes: String,
    pub(crate) introduction: Introduction,
    /// Rank 0's becomes the heap's identity.
    id: u64,
}

impl Hello {
    pub(crate) fn new(
        config: &HeapConfig,
        (sizes, granule): ((u64, u64), u64),
        plain: Option<Reason>,
        introduction: Introduction,
    ) -> Self {
        Self {
            layout: LAYOUT.to_owned(),
            sizes,
            granule,
            plain,
            qps: config.qps,
            queue_pairs: config.queue_pairs,
            routes: config.routes.to_string(),
            introduction,
            id: rand::rng().next_u64(),
        }
    }

    /// All want the same heap: ranks and their messages.
    pub(crate) fn agree(all: &[(u32, &Self)]) -> Result<(), ShmemError> {
        agree("layout of the heap", all.iter().map(|(rank, hello)| (*rank, &hello.layout)))?;
        agree("size of the heap", all.iter().map(|(rank, hello)| (*rank, hello.sizes.0)))?;
        agree("max_size", all.iter().map(|(rank, hello)| (*rank, hello.sizes.1)))?;
        agree("qps_per_peer", all.iter().map(|(rank, hello)| (*rank, hello.qps)))?;
        agree("routes", all.iter().map(|(rank, hello)| (*rank, &hello.routes)))?;
        agree("queue_pairs", all.iter().map(|(rank, hello)| (*rank, hello.queue_pairs)))
    }
}

/// Which ranks reach which by loads and stores; the same on all ranks.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Routes {
    /// `direct[a][b]`: kernels of rank a load from and store to the memory of rank b.
    direct: Vec<Vec<bool>>,
}

impl Routes {
    /// Whether some other rank reaches this one by RDMA.
    pub(crate) fn is_shared(&self, rank: usize) -> bool {
        (0..self.direct.len()).any(|from| from != rank && !self.direct[from][rank])
    }

    /// Whether a rank reaches another by loads and stores.
    pub(crate) fn is_direct(&self, from: usize, to: usize) -> bool {
        self.direct[from][to]
    }

    /// Whether there are queue pairs between two ranks.
    pub(crate) fn needs_queue_pairs(&self, a: usize, b: usize) -> bool {
        let other = a != b && (!self.direct[a][b] || !self.direct[b][a]);
        other || self.is_shared(a) || self.is_shared(b)
    }

    pub(crate) fn need_nics(&self) -> bool {
        (0..self.direct.len()).any(|rank| self.is_shared(rank))
    }
}

/// Whether a rank found what another's kernel stored; None where none did.
pub(crate) type Seen = Option<Result<(), String>>;

/// A heap that is being made.
pub(crate) struct Making<'a> {
    pub(crate) gpu: &'a Arc<dyn Gpu>,
    pub(crate) device: Option<&'a Device>,
    pub(crate) config: HeapConfig,
    pub(crate) overrides: Vec<String>,
    pub(crate) rank: u32,
    pub(crate) world: u32,
}

impl Heap {
    /// Makes a heap on all ranks of `world`, each of which calls this with the same settings; or, on a rank
    /// that comes back, its part of the heap of the others, who call [`Heap::regroup`].
    /// `device` is needed where some rank is not reached by loads and stores.
    ///
    /// # Errors
    /// The same on all ranks, if they all still run: the first cause, with its rank and step. Nothing
    /// is left behind then.
    pub fn create(
        world: &mut World,
        gpu: &Arc<dyn Gpu>,
        device: Option<&Device>,
        config: &HeapConfig,
    ) -> Result<Self, ShmemError> {
        let (rank, size) = (world.rank(), world.world_size());
        if world.view().newcomers().contains(&rank) {
            return Self::come_back(world, gpu, device, config);
        }
        let mut steps = Steps::new(world, None, config.deadline);
        let prepared = config.clone().with_env().and_then(|(config, overrides)| {
            let making = Making { gpu, device, config, overrides, rank, world: size };
            making.introduce().map(|(exporter, hello)| ((making, exporter), hello))
        });
        let ((making, exporter), hellos) = steps.end_with("introduce", prepared)?;
        making.agree(&hellos)?;
        steps.set_heap(hellos[0].id, "introduce")?;
        making.finish(&mut steps, exporter, hellos)
    }
}

impl Making<'_> {
    pub(crate) fn introduce(&self) -> Result<(Exporter, Hello), ShmemError> {
        let (granule, plain) = match self.config.shared.then(|| self.gpu.arena(1)) {
            Some(Ok(arena)) => (arena.granule(), None),
            Some(Err(why)) => (1, Some(Reason::new("sharing memory of the device", why))),
            None => (1, Some(Reason::new("sharing memory", "not wanted: HeapConfig::shared"))),
        };
        let granule = granule.max(reserved(self.world)).next_power_of_two();
        let sizes = self.config.sizes(1)?;
        load_probe(&**self.gpu)?;
        let exporter = Exporter::start(&**self.gpu).map_err(ShmemError::Descriptors)?;
        let hello =
            Hello::new(&self.config, (sizes, granule), plain, exporter.introduction().clone());
        Ok((exporter, hello))
    }

    fn agree(&self, hellos: &[Hello]) -> Result<(), ShmemError> {
        Hello::agree(&(0..).zip(hellos).collect::<Vec<_>>())?;
        match &self.config.routes {
            RoutePolicy::RdmaOf(ranks) => match ranks.iter().find(|&&rank| rank >= self.world) {
                Some(&rank) => Err(ShmemError::Rank { rank, world: self.world }),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn finish(
        self,
        steps: &mut Steps<'_>,
        exporter: Exporter,
        hellos: Vec<Hello>,
    ) -> Result<Heap, ShmemError> {
        let (id, gpu) = (hellos[0].id, &**self.gpu);
        let granule = hellos.iter().map(|hello| hello.granule).max().unwrap_or(1);
        let size = hellos[0].sizes.0.max(granule);
        let most = hellos[0].sizes.1.max(size);
        let ranks = hellos.into_iter().map(|hello| (hello.introduction, hello.plain));
        let (introductions, plain): (Vec<_>, Vec<_>) = ranks.unzip();
        // All ranks' memory grows or none does.
        let limit = if plain.iter().all(Option::is_none) { most } else { size };
        let local = Local::new(gpu, self.rank, limit, plain, exporter, introductions);
        let offered = local.and_then(|mut local| local.commit(gpu, 0, size).map(|t| (local, t)));
        let (mut local, tickets) = steps.end_with("offer", offered)?;
        let tickets: Vec<_> = tickets.iter().map(Option::as_ref).collect();
        let (mut decisions, words) = self.attach(&mut local, &tickets, |_| true);
        decisions[self.rank as usize] = Some(Decision::best(Route::Own));
        let decisions = decisions.into_iter().flatten().collect();
        let words = steps.end("attach", Ok(words))?;
        let (decisions, routes) = self.probe(steps, &mut local, &words, decisions)?;
        let remote = self.register(&local, &routes, &decisions);
        let remote = if self.config.queue_pairs || routes.need_nics() {
            let offered = remote.map(|remote| {
                let offer = remote.as_ref().map(Remote::offer);
                (remote, offer)
            });
            let (mut remote, offers) = steps.end_with("register", offered)?;
            let offers: Option<Vec<Offer>> = offers.into_iter().collect();
            let connected = match (&mut remote, offers) {
                (Some(remote), Some(offers)) => {
                    let offers: Vec<_> = offers.into_iter().map(Some).collect();
                    remote.connect(&offers, &(0..offers.len()).collect::<Vec<_>>())
                }
                _ => Ok(()),
            };
            connected.map(|()| remote)
        } else {
            remote
        };
        let heap = remote.and_then(|remote| {
            let parts = Parts::new(&self, (id, size, size.ilog2() as u8), local, routes, remote)?;
            let overrides = self.overrides.clone();
            Heap::new(parts, reserved(self.world), limit, overrides, decisions)
        });
        let mut heap = steps.keep("connect", heap)?;
        heap.times = std::mem::take(&mut steps.times);
        tracing::info!(report = %heap.report(), "symmetric heap");
        Ok(heap)
    }

    /// Maps the memory of those other ranks that `are_met`, where possible. For each of them the route, which
    /// reading back may still change, and the word that was written.
    pub(crate) fn attach(
        &self,
        local: &mut Local,
        tickets: &[Option<&Ticket>],
        are_met: impl Fn(usize) -> bool,
    ) -> (Vec<Option<Decision>>, Vec<Option<u64>>) {
        // Other ranks wait for this step until the whole deadline.
        let deadline = Instant::now() + self.config.deadline / 2;
        let attached = (0..).zip(tickets).map(|(rank, ticket)| {
            match rank != self.rank && are_met(rank as usize) {
                true => {
                    let (decision, word) = self.attach_one(local, rank, *ticket, deadline);
                    (Some(decision), word)
                }
                false => (None, None),
            }
        });
        attached.unzip()
    }

    fn attach_one(
        &self,
        local: &mut Local,
        rank: u32,
        ticket: Option<&Ticket>,
        deadline: Instant,
    ) -> (Decision, Option<u64>) {
        let refused = |not_better| (decision(Route::Rdma, not_better), None);
        if self.config.routes.forces_rdma(self.rank, rank) {
            let routes = &self.config.routes;
            return refused(vec![Reason::new("loads and stores", format!("forced: {routes}"))]);
        }
        let attached = match local.attach(rank as usize, 0, ticket, deadline) {
            Ok(attached) => attached,
            Err(why) => return refused(why),
        };
        let (by, mut tried) = (attached.by.to_string(), attached.tried);
        match local.probe(
            &**self.gpu,
            &attached.segment,
            deadline.saturating_duration_since(Instant::now()),
        ) {
            Ok(word) => {
                local.mapped[rank as usize] = Some(vec![attached.segment]);
                (Decision { route: Route::Direct, by, not_better: tried }, Some(word))
            }
            Err(why) => {
                tried.push(why);
                refused(tried)
            }
        }
    }

    /// Whether this rank finds the words that other ranks have written to it.
    pub(crate) fn read_back<'w>(
        &self,
        local: &Local,
        words: impl Iterator<Item = Option<&'w Vec<Option<u64>>>>,
    ) -> Vec<Seen> {
        let seen = (0..).zip(words).map(|(rank, words)| {
            let word = words?.get(self.rank as usize).copied().flatten()?;
            Some(local.probed(&**self.gpu, rank, word))
        });
        seen.collect()
    }

    /// Reads back the words of other ranks, and derives the routes of all.
    fn probe(
        &self,
        steps: &mut Steps<'_>,
        local: &mut Local,
        words: &[Vec<Option<u64>>],
        mut decisions: Vec<Decision>,
    ) -> Result<(Vec<Decision>, Routes), ShmemError> {
        let own = self.rank as usize;
        let seen = self.read_back(local, words.iter().map(Some));
        let seen = steps.end("probe", Ok(seen))?;
        // seen[b][a]: whether b saw a's word.
        let reaches = |a: usize, b: usize| a == b || matches!(seen[b].get(a), Some(Some(Ok(()))));
        let ranks = 0..seen.len();
        let direct = ranks.clone().map(|a| ranks.clone().map(|b| reaches(a, b)).collect());
        for (rank, decision) in decisions.iter_mut().enumerate() {
            if let Some(Some(Err(why))) = seen[rank].get(own) {
                local.unmap(rank, decision, why);
            }
        }
        Ok((decisions, Routes { direct: direct.collect() }))
    }

    /// Queue pairs and keys, where they are needed.
    fn register(
        &self,
        local: &Local,
        routes: &Routes,
        decisions: &[Decision],
    ) -> Result<Option<Remote>, ShmemError> {
        let own = self.rank as usize;
        let far = decisions.iter().position(|decision| decision.route == Route::Rdma);
        if let Some(far) = far {
            let why = Reason::list(&decisions[far].not_better);
            let unreachable = |but: &str| ShmemError::Config {
                field: "route",
                value: format!("rank {} to rank {far}", self.rank),
                expected: format!("loads and stores, which fail ({why}){but}"),
            };
            if self.config.routes == RoutePolicy::Direct {
                return Err(unreachable("; no other route is allowed"));
            }
            if self.device.is_none() {
                return Err(unreachable(", or RDMA, for which no NIC was given"));
            }
        }
        let wanted = (0..decisions.len())
            .map(|peer| self.config.queue_pairs || routes.needs_queue_pairs(own, peer));
        let wanted: Vec<_> = wanted.collect();
        self.remote(local, &wanted)
    }

    /// Queue pairs to the ranks of which `wanted` says so, and the keys of this rank's memory; None without any.
    pub(crate) fn remote(
        &self,
        local: &Local,
        wanted: &[bool],
    ) -> Result<Option<Remote>, ShmemError> {
        if !wanted.contains(&true) {
            return Ok(None);
        }
        let device = self.device.ok_or_else(|| ShmemError::Config {
            field: "device",
            value: "none".to_owned(),
            expected: "a NIC: some rank reaches another by RDMA, or queue_pairs is set".to_owned(),
        })?;
        let qps = (self.config.qps, self.config.timeout);
        let mut remote = Remote::new(self.gpu, device, self.rank, wanted, qps)?;
        if let Some(memory) = local.newest() {
            remote.register(memory)?;
        }
        Ok(Some(remote))
    }
}

fn decision(route: Route, not_better: Vec<Reason>) -> Decision {
    Decision { not_better, ..Decision::best(route) }
}
