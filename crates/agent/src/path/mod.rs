//! Ways from memory to memory, behind one trait, and the choice among them.

mod bounce;
mod direct;
mod explain;
pub(crate) mod network;
mod process;
pub(crate) mod tcp;

pub use explain::{Estimate, Explanation};

use crate::inner::Inner;
use crate::list::Owner;
use crate::lock;
use crate::memory::LocalMemory;
use crate::metadata::Place;
use crate::peer::{Peer, PeerMemory};
use crate::prepared::Part;
use crate::{AgentError, Op};
use explain::Rate;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
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

/// A deadline for which no clock is long enough.
const FAR: Duration = Duration::from_secs(u32::MAX as u64);

/// `deadline` after `start`, or as late as a clock can tell.
pub(crate) fn until(start: Instant, deadline: Duration) -> Instant {
    start.checked_add(deadline).unwrap_or_else(|| start + FAR)
}

/// How long a post may go on.
pub(crate) struct Limit<'a> {
    cancel: &'a AtomicBool,
    posted: Instant,
    deadline: Duration,
    peer: &'a Owner,
}

impl<'a> Limit<'a> {
    pub(crate) fn new(
        cancel: &'a AtomicBool,
        posted: Instant,
        deadline: Duration,
        peer: &'a Owner,
    ) -> Self {
        Self { cancel, posted, deadline, peer }
    }

    /// When it ends.
    pub(crate) fn until(&self) -> Instant {
        until(self.posted, self.deadline)
    }

    /// How long that is from now.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.posted.elapsed())
    }

    /// Whether to go on.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(AgentError::Cancelled);
        }
        match self.posted.elapsed() > self.deadline {
            true => {
                let (what, after) = (format!("transfer with {}", self.peer), self.deadline);
                Err(AgentError::Timeout { what, after })
            }
            false => Ok(()),
        }
    }
}

/// A way that can be taken.
pub(crate) trait Path: Send + Sync {
    /// Moves the pieces of `part`, or begins to. Between pieces it looks at `limit`, and what it needs and
    /// is not there yet is made by its end.
    /// The peer holds its paths, so a path does not hold its peer.
    ///
    /// After an error nothing of this part is under way.
    fn start(
        &self,
        op: Op,
        peer: &Arc<Peer>,
        part: &Arc<Part>,
        limit: &Limit<'_>,
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
    /// Whether all bytes are in place, or after [`Flight::cancel`] whether nothing is under way: then
    /// no byte lands any more and none is read, at either end. Never waits. After an error nothing is
    /// under way, either.
    fn poll(&mut self) -> Result<bool, AgentError>;
    /// Begins no more. What is under way may end by itself until then, and is ended by force later.
    /// The first call counts.
    fn cancel(&mut self, until: Instant);
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
    /// By when.
    pub(crate) until: Instant,
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

    /// How long that is from now.
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// The best way. It is looked for once; where there is none, every time.
    pub(crate) fn route(&self) -> Result<Arc<Route>, AgentError> {
        let place = self.local.region().kind().into();
        let made = lock(&self.remote.routes).entry(place).or_default().clone();
        let late = || {
            let what = format!("a path to {:?} of {}", self.remote.extent.label, self.peer.owner);
            AgentError::Timeout { what, after: self.agent.config.deadline }
        };
        made.get_or_make(self.until, || self.choose(place), late)
    }

    fn choose(&self, place: Place) -> Result<Arc<Route>, AgentError> {
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
