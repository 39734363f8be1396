//! The parts of an agent, put together here and nowhere else.

use crate::control::{Asked, Control, Link, ended};
use crate::counters::Counters;
use crate::deadline::Deadline;
use crate::memories::{Memories, Registration};
use crate::metadata::{NAMES, check_name, random};
use crate::metrics::{Metrics, MetricsTo};
use crate::names::{Generation, Op, Owner, PathKind};
use crate::path::answering::Answering;
use crate::path::network::Nics;
use crate::path::tcp::{Serving, Tcp};
use crate::peer::Ways;
use crate::peers::Peers;
use crate::plan::list::BlockList;
use crate::plan::{Slots, Span, Walk, resolve, spans};
use crate::prepared::Side;
use crate::remote_memory::RemoteMemory;
use crate::router::Router;
use crate::serve::Desk;
use crate::stream::{Offered, Sending};
use crate::transfer::Transfer;
use crate::{AgentConfig, AgentError};
use std::sync::Arc;
use warpverbs_gpu::{Gpu, GpuChoice, GpuKind};
use warpverbs_mem::HostBuf;
use warpverbs_peer::Exporter;

/// The parts of an agent. Dropping them ends it.
pub(crate) struct Parts {
    pub(crate) control: Arc<Control>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) router: Arc<Router>,
    /// It answers peers' questions.
    pub(crate) desk: Arc<Desk>,
    /// It shows the counters to others.
    pub(crate) metrics: Option<Metrics>,
}

impl Parts {
    /// Of an agent whose control thread does not run yet.
    pub(crate) fn new(name: &str, mut config: AgentConfig) -> Result<Self, AgentError> {
        let (expected, value) = (NAMES, format!("{name:?}"));
        check_name("name", name).map_err(|_| AgentError::Config {
            field: "name",
            value,
            expected,
        })?;
        config.check()?;
        let [gpu, host] = devices(&config)?;
        let exporter = Exporter::start(&*gpu);
        let exporter = exporter.map_err(|error| AgentError::system("unix socket", error))?;
        let owner = Owner { name: name.into(), generation: Generation::now(random()?) };
        let control = Arc::new(Control::new(owner.clone(), &config)?);
        let nics = (config.nics.clone(), &config.advertise[..]);
        let memories = Memories::new(control.clone(), exporter, gpu.info().kind, nics);
        let identity = memories.contact.introduction.identity.clone();
        let nics = Arc::new(Nics {
            owner: owner.clone(),
            nics: config.nics.clone(),
            queue_pairs: config.queue_pairs,
            gpu: gpu.clone(),
            deadline: config.deadline,
            patience: config.silence,
        });
        let tcp = Tcp::new(&config, &gpu);
        let ways = Ways {
            control: Arc::downgrade(&control),
            identity: identity.clone(),
            nics: nics.clone(),
            tcp: tcp.clone(),
        };
        let peers = Arc::new(Peers::new((&control, &memories), ways, config.deadline)?);
        let desk = Arc::new(Desk {
            control: control.clone(),
            memories: memories.clone(),
            peers: peers.clone(),
            nics,
            answering: Answering::default(),
            tcp,
            serving: Serving::default(),
            streams: Arc::new(Offered::default()),
        });
        let metrics = config.metrics.take();
        let tally = control.tally.clone();
        let router = Arc::new(Router::new(owner, identity, config, (gpu, host), tally));
        let mut parts = Self { control, memories, peers, router, desk, metrics: None };
        // Last: from here on, what was begun ends when it is dropped.
        parts.metrics = metrics.map(|to| parts.show(&to)).transpose()?.flatten();
        Ok(parts)
    }

    /// All that was counted, and all there is.
    pub(crate) fn counters(&self) -> Counters {
        Counters::of(&self.control, &self.memories, &self.peers)
    }

    /// Begins to show the counters to others.
    fn show(&self, to: &MetricsTo) -> Result<Option<Metrics>, AgentError> {
        let (control, desk) = (self.control.clone(), self.desk.clone());
        let name = self.memories.owner.name.clone();
        let agent = name.clone();
        let text =
            move || Counters::of(&control, &desk.memories, &desk.peers).to_prometheus(&agent);
        Metrics::start(to, &name, Box::new(text))
    }

    /// The memory that a list names, every range of it checked.
    pub(crate) fn resolved(&self, list: &BlockList) -> Result<(Side, Slots), AgentError> {
        if list.is_empty() {
            let expected = "at least one".into();
            return Err(AgentError::Count { what: "a list of blocks", found: 0, expected });
        }
        let Self { memories, peers, .. } = self;
        if *list.owner() == memories.owner {
            let (table, slots) = resolve(list, |id| memories.memory(id), |memory| &memory.extent)?;
            return Ok((Side::Local(table), slots));
        }
        let peer = peers.peer_of(list.owner())?;
        let (table, slots) = resolve(list, |id| peer.memory(id), |memory| &memory.extent)?;
        Ok((Side::Remote(peer, table), slots))
    }

    /// A transfer between all blocks of two lists, in order.
    pub(crate) fn transfer(
        &self,
        op: Op,
        local: &BlockList,
        remote: &BlockList,
    ) -> Result<Transfer, AgentError> {
        let (here, mut slots_here) = self.resolved(local)?;
        let (there, mut slots_there) = self.resolved(remote)?;
        let from = Walk::new(local, &mut slots_here);
        let to = Walk::new(remote, &mut slots_there);
        self.transfer_of(op, (&here, &there), || spans(from, to))
    }

    /// A transfer between two sides, of which `spans` gives the pieces. On the remote side memory of this
    /// agent is that of a peer.
    pub(crate) fn transfer_of(
        &self,
        op: Op,
        (local, remote): (&Side, &Side),
        spans: impl FnOnce() -> Result<Vec<Span>, AgentError>,
    ) -> Result<Transfer, AgentError> {
        let own;
        let remote = match remote {
            Side::Local(table) if table[0].extent.owner == self.memories.owner => {
                let itself = self.peers.itself();
                let known = table.iter().map(|memory| itself.memory(memory.extent.id));
                own = Side::Remote(itself.clone(), known.collect::<Result<_, _>>()?);
                &own
            }
            other => other,
        };
        let plan = self.router.plan(op, (local, remote), spans)?;
        Ok(Transfer::new(&self.control, self.router.config.deadline, plan))
    }
}

impl Sending for Parts {
    fn link_to(&self, peer: &str, deadline: &Deadline) -> Result<(Owner, Arc<Link>), AgentError> {
        let peer = self.peers.peer(peer)?;
        Ok((peer.name.clone(), peer.link(deadline)?))
    }

    fn ring(
        &self,
        peer: &Owner,
        (metadata, id): (&[u8], u32),
        deadline: &Deadline,
    ) -> Result<RemoteMemory, AgentError> {
        self.peers.load(metadata, Some(peer), deadline)?;
        Ok(RemoteMemory(self.peers.peer_of(peer)?.memory(id)?))
    }

    fn stage(&self, bytes: usize) -> Result<Registration, AgentError> {
        self.memories.register(HostBuf::region(bytes)?.into(), "staging of a stream")
    }

    fn path(
        &self,
        from: &Registration,
        to: &RemoteMemory,
        deadline: &Deadline,
    ) -> Result<PathKind, AgentError> {
        let peer = self.peers.peer_of(to.owner())?;
        Ok(self.router.route(from.memory(), &peer, &to.0, deadline)?.kind())
    }

    fn write(&self, from: &BlockList, to: &BlockList) -> Result<Transfer, AgentError> {
        self.transfer(Op::Write, from, to)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // While there is something to count.
        drop(self.metrics.take());
        let why = ended(&self.control.own.owner);
        self.memories.leave();
        // The control thread ends transfers, memory and peers, in this order, wherever the agent is dropped.
        self.control.stop();
        self.desk.serving.close();
        self.desk.streams.close(&why);
    }
}

/// The device whose kernels use registered memory, and the one that maps host memory of others.
fn devices(config: &AgentConfig) -> Result<[Arc<dyn Gpu>; 2], AgentError> {
    Ok(match &config.gpu {
        Some(gpu) if gpu.info().kind == GpuKind::Simt => [gpu.clone(), gpu.clone()],
        Some(gpu) => [gpu.clone(), warpverbs_gpu::open(GpuChoice::Simt)?],
        None => {
            let host = warpverbs_gpu::open(GpuChoice::Simt)?;
            [host.clone(), host]
        }
    })
}
