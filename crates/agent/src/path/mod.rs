//! Ways from memory to memory, behind one trait, and the choice among them.

mod bounce;
mod direct;
mod explain;
pub(crate) mod network;
mod process;
pub(crate) mod tcp;

pub use explain::{Estimate, Explanation};

use crate::inner::Inner;
use crate::lock;
use crate::memory::LocalMemory;
use crate::peer::{Peer, PeerMemory};
use crate::prepared::Part;
use crate::{AgentError, Op};
use explain::Rate;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use warpverbs_peer::Reason;

/// Why a path is not tried.
pub(crate) const EXCLUDED: &str = "excluded by the configuration";

/// A way from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathKind {
    /// Both are in this process.
    SameProcess,
    /// The peer's memory is mapped into this process.
    Mapped,
    /// The kernel copies from process to process.
    ProcessCopy,
    /// Queue pairs of a NIC.
    Network,
    /// TCP sockets, into device memory where the peer's NIC can.
    Tcp,
}

impl PathKind {
    /// All of them, the best first.
    pub const ALL: [Self; 5] =
        [Self::SameProcess, Self::Mapped, Self::ProcessCopy, Self::Network, Self::Tcp];
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameProcess => "same process",
            Self::Mapped => "mapped memory",
            Self::ProcessCopy => "process copy",
            Self::Network => "network",
            Self::Tcp => "TCP",
        })
    }
}

/// A way that can be taken.
pub(crate) trait Path: Send + Sync {
    /// Moves the pieces of `part`, or begins to. Between pieces it looks at `cancel`.
    /// The peer holds its paths, so a path does not hold its peer.
    fn start(
        &self,
        op: Op,
        peer: &Arc<Peer>,
        part: &Arc<Part>,
        cancel: &AtomicBool,
    ) -> Result<Started, AgentError>;
}

/// How far a path has come.
pub(crate) enum Started {
    /// All bytes are in place.
    Done,
    /// It is under way.
    Flight(Box<dyn Flight>),
}

impl Started {
    /// As far as `flight` comes at its first poll, which begins what it can.
    fn by(mut flight: impl Flight + 'static) -> Result<Self, AgentError> {
        Ok(match flight.poll()? {
            true => Self::Done,
            false => Self::Flight(Box::new(flight)),
        })
    }
}

/// Pieces under way. Dropping it waits, for a bounded time, until no byte of the local memory can be
/// touched any more.
pub(crate) trait Flight: Send {
    /// Whether all bytes are in place, or after [`Flight::cancel`] whether nothing is under way.
    /// Never waits.
    fn poll(&mut self) -> Result<bool, AgentError>;
    /// Begins no more.
    fn cancel(&mut self);
}

/// The way that was chosen for a pair of memories, and why.
pub(crate) struct Route {
    pub(crate) kind: PathKind,
    pub(crate) path: Box<dyn Path>,
    /// How it came about; may be empty.
    pub(crate) by: String,
    /// Better ways, and why not.
    pub(crate) tried: Vec<Reason>,
    pub(crate) rate: Rate,
    /// Whether it should be about as fast as the memory of this machine.
    pub(crate) same_machine: bool,
}

/// What a way needs to be tried.
pub(crate) struct Pair<'a> {
    pub(crate) agent: &'a Arc<Inner>,
    pub(crate) local: &'a Arc<LocalMemory>,
    pub(crate) peer: &'a Arc<Peer>,
    pub(crate) remote: &'a Arc<PeerMemory>,
}

/// A way with how it came about, or every reason against it.
type Attempt = Result<(Box<dyn Path>, String), Vec<Reason>>;

impl Pair<'_> {
    fn attempt(&self, kind: PathKind) -> Attempt {
        if !self.agent.config.allows(kind) {
            return Err(vec![Reason::new(kind.to_string(), EXCLUDED)]);
        }
        match kind {
            PathKind::SameProcess => direct::same_process(self),
            PathKind::Mapped => direct::mapped(self),
            PathKind::ProcessCopy => process::process_copy(self),
            PathKind::Network => network::network(self),
            PathKind::Tcp => tcp::tcp(self),
        }
    }

    fn same_machine(&self) -> bool {
        let (own, peer) = (&self.agent.contact.introduction, &self.peer.contact.introduction);
        !own.identity.boot_id.is_empty() && own.identity.boot_id == peer.identity.boot_id
    }

    /// The best way. It is looked for once; where there is none, every time.
    pub(crate) fn route(&self) -> Result<Arc<Route>, AgentError> {
        let place = self.local.region().kind().into();
        let mut routes = lock(&self.remote.routes);
        if let Some(route) = routes.get(&place) {
            return Ok(route.clone());
        }
        let mut tried = Vec::new();
        for kind in PathKind::ALL {
            match self.attempt(kind) {
                Ok((path, by)) => {
                    let (rate, same_machine) = (Rate::default(), self.same_machine());
                    let route = Route { kind, path, by, tried, rate, same_machine };
                    let route = Arc::new(route);
                    tracing::info!(
                        local = %self.local.extent.label,
                        remote = %self.remote.extent.label,
                        peer = %self.peer.owner,
                        route = %route.text(),
                        "path chosen"
                    );
                    routes.insert(place, route.clone());
                    return Ok(route);
                }
                Err(reasons) => tried.extend(reasons),
            }
        }
        Err(AgentError::NoPath {
            local: format!("{place} {:?}", self.local.extent.label),
            remote: format!(
                "{} {:?} of {}",
                self.remote.info.place, self.remote.extent.label, self.peer.owner
            ),
            tried,
        })
    }
}
