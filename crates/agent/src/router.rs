//! The choice among paths, and what it needs to know of a peer's memory.

use crate::control::Asked;
use crate::deadline::Deadline;
use crate::memory::LocalMemory;
use crate::names::{Op, Owner, PathKind, Place};
use crate::path::{self, Copying, Found, Job, network, tcp};
use crate::peer::{Peer, Routed};
use crate::plan::Span;
use crate::prepared::Side;
use crate::route::{Chosen, Rate};
use crate::tally::{self, Tally};
use crate::task::{Part, Plan};
use crate::{AgentConfig, AgentError, EXCLUDED};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use warpverbs_gpu::Gpu;
use warpverbs_peer::descriptor::Trust;
use warpverbs_peer::{Decision, Identity, Reason, RemoteRange, reach};

pub(crate) struct Router {
    pub(crate) owner: Owner,
    /// Of this process.
    identity: Identity,
    pub(crate) config: AgentConfig,
    pub(crate) gpu: Arc<dyn Gpu>,
    /// The host SIMT device, which maps host memory of other processes. `gpu` itself if that is it.
    pub(crate) host: Arc<dyn Gpu>,
    copying: Copying,
    tally: Arc<Tally>,
}

/// The two memories between which a path is searched, and the deadline.
struct Ends<'a> {
    local: &'a LocalMemory,
    peer: &'a Arc<Peer>,
    remote: &'a Arc<Routed>,
    deadline: &'a Deadline,
}

impl Router {
    pub(crate) fn new(
        owner: Owner,
        identity: Identity,
        config: AgentConfig,
        (gpu, host): (Arc<dyn Gpu>, Arc<dyn Gpu>),
        tally: Arc<Tally>,
    ) -> Self {
        let copying = Copying::new(&gpu, &config);
        Self { owner, identity, config, gpu, host, copying, tally }
    }

    /// The plan of a transfer between two lists, of which these are the pieces.
    pub(crate) fn plan(
        &self,
        op: Op,
        (local, remote): (&Side, &Side),
        spans: impl FnOnce() -> Result<Vec<Span>, AgentError>,
    ) -> Result<Plan, AgentError> {
        let (here, peer, there) = match (local, remote) {
            (Side::Local(here), Side::Remote(peer, there)) => (here, peer, there),
            (Side::Remote(..), _) => return Err(local.foreign("the local list", "this agent")),
            (_, Side::Local(_)) => return Err(remote.foreign("the remote list", "a peer")),
        };
        if here[0].extent.owner != self.owner {
            return Err(local.foreign("the local list", "this agent"));
        }
        let deadline = &Deadline::after(self.config.deadline);
        let part = |Span { slots, pieces, bytes }| {
            let (local, remote) = (&here[slots.0 as usize], &there[slots.1 as usize]);
            let route = self.route(local, peer, remote, deadline)?;
            let (kind, moved, lists) = (route.kind(), AtomicU64::new(0), Arc::default());
            let (local, remote) = (local.clone(), remote.memory.clone());
            let job = Arc::new(Job { op, kind, local, remote, pieces, bytes, moved, lists });
            Ok(Part { job, route })
        };
        let parts = spans()?.into_iter().map(part).collect::<Result<Vec<_>, AgentError>>()?;
        Ok(Plan::new(op, peer.asked(), parts))
    }

    /// The best path. It is searched once and kept; a failed search is repeated at each call.
    pub(crate) fn route(
        &self,
        local: &LocalMemory,
        peer: &Arc<Peer>,
        remote: &Arc<Routed>,
        deadline: &Deadline,
    ) -> Result<Arc<Chosen>, AgentError> {
        let place = local.kind.into();
        let what = || format!("a path to {:?} of {}", remote.extent.label, peer.name);
        let ends = Ends { local, peer, remote, deadline };
        remote.route_from(place).get_or_make(deadline, what, || self.choose(place, &ends))
    }

    fn choose(&self, place: Place, ends: &Ends<'_>) -> Result<Arc<Chosen>, AgentError> {
        let Ends { local, peer, remote, .. } = ends;
        let mut tried = Vec::new();
        for kind in PathKind::ALL {
            match self.attempt(kind, ends) {
                Ok((path, by)) => {
                    let (rate, same_machine) = (Rate::default(), peer.prover.same_machine());
                    let how = Decision { route: kind, by, not_better: tried };
                    let chosen = Chosen { how, path, rate, same_machine };
                    self.tally.chose(kind);
                    self.announce(&chosen, place, ends);
                    return Ok(Arc::new(chosen));
                }
                Err(reasons) => {
                    let reason = |why| Reason::new(kind.to_string(), why);
                    tried.extend(reasons.into_iter().map(reason));
                }
            }
        }
        // Of a peer that has ended meanwhile there is one thing to say.
        peer.check()?;
        tally::count(&self.tally.no_path);
        Err(AgentError::NoPath {
            local: format!("{place} {:?}", local.extent.label),
            remote: format!("{} {:?} of {}", remote.info.place, remote.extent.label, peer.name),
            tried,
        })
    }

    /// Tells of a path that was chosen. A peer may have thousands of memories, so only the first path of a kind
    /// from memory of a kind is news.
    fn announce(&self, chosen: &Chosen, place: Place, ends: &Ends<'_>) {
        let Ends { local, peer, remote, .. } = ends;
        macro_rules! tell {
            ($tell:ident) => {
                tracing::$tell!(
                    local = %local.extent.label,
                    remote = %remote.extent.label,
                    peer = %peer.name,
                    how = chosen.how.explain(),
                    "path chosen"
                )
            };
        }
        match (peer.is_news((place, remote.info.place, chosen.kind())), self.config.announces_paths)
        {
            (false, _) => tell!(debug),
            (true, false) => tell!(info),
            (true, true) => tell!(warn),
        }
    }

    fn attempt(&self, kind: PathKind, ends: &Ends<'_>) -> Found {
        let Ends { local, peer, remote, deadline } = *ends;
        let no = |why: &dyn std::fmt::Display| vec![why.to_string()];
        if !self.config.allows(kind) {
            return Err(no(&EXCLUDED));
        }
        if peer.is_itself && kind != PathKind::SameProcess {
            return Err(no(&"the peer is this agent itself"));
        }
        let asked = &peer.asked();
        match kind {
            PathKind::SameProcess => {
                let Some(here) = &peer.here else { return Err(no(&"the peer is another process")) };
                let here = here.upgrade().ok_or_else(|| no(&"the peer's agent has ended"))?;
                let theirs = here.memory(remote.extent.id).map_err(|error| no(&error))?;
                path::same_process(&self.copying, local, &theirs)
            }
            PathKind::Mapped => {
                let range = self.range(peer, remote, deadline).map_err(|error| no(&error))?;
                let connect = || asked.clone().link(deadline).map(drop);
                path::mapped(&self.copying, local, range, connect)
            }
            PathKind::ProcessCopy => {
                peer.prover.may_copy().map_err(|why| no(&why))?;
                let proven = || peer.prover.proven(&self.owner, asked, remote, deadline);
                path::process_copy((&self.copying, &peer.bounces), local, remote, proven)
            }
            PathKind::Network => {
                let range = || self.range(peer, remote, deadline);
                network::network(&peer.pairs, remote, range, (asked, deadline))
            }
            PathKind::Tcp => tcp::tcp(&peer.sockets, remote, (asked, deadline)),
        }
    }

    /// The peer's memory mapped here, or its key, or why there is neither.
    pub(crate) fn range<'a>(
        &self,
        peer: &Arc<Peer>,
        memory: &'a Arc<Routed>,
        deadline: &Deadline,
    ) -> Result<&'a RemoteRange, AgentError> {
        if let Some(range) = memory.range.get() {
            return Ok(range);
        }
        let (own, theirs) = (&self.identity, &peer.contact.introduction);
        let nothing = Trust::Proven { secrets: [0; 32].into(), process: Err("nothing is proven") };
        let offer = &memory.info.offer;
        let possible = offer.is_mappable() && own.may_share(&theirs.identity).is_ok();
        let proven;
        let direct = match self.config.allows(PathKind::Mapped) {
            false => Err(Reason::new(PathKind::Mapped.to_string(), EXCLUDED)),
            // The reasons are found before anything is asked for.
            true if !possible => Ok(nothing),
            true => {
                proven = peer.prover.proven(&self.owner, &peer.asked(), memory, deadline)?;
                Ok(proven.trust())
            }
        };
        let device = if memory.info.place == Place::Host { &self.host } else { &self.gpu };
        let range = reach(&**device, own, theirs, offer, direct, deadline.0.end());
        Ok(memory.range.get_or_init(|| range))
    }
}
