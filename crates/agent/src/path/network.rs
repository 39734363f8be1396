//! Queue pairs of the agents' NICs: several to each peer, made when they are first needed and again
//! after an error. Queue pair `i` goes from NIC `i` here to NIC `i` there, each modulo how many there
//! are, with the keys that these know the memory by.

use super::{Attempt, Flight, Limit, Pair, Path, PathKind, Started};
use crate::control::frame::Service;
use crate::control::link::{Link, LinkId, ended, lost};
use crate::inner::Inner;
use crate::list::Owner;
use crate::lock;
use crate::made::Made;
use crate::peer::Peer;
use crate::prepared::Part;
use crate::{AgentError, Op};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use warpverbs_gpu::Gpu;
use warpverbs_peer::Reason;
use warpverbs_transport::{
    Device, Endpoint, EndpointConfig, EndpointHandle, Error, MemoryRegion, RemoteRegion, SendFlags,
    WaitError,
};

/// Bytes of one work request at most: long pieces are spread over the queue pairs.
const CHUNK: u64 = 256 << 10;
/// Of so many work requests one at least asks for its completion, so that there is room again.
const SIGNALED: u64 = 16;
/// Queue pairs that a peer may ask for.
const MOST_PAIRS: usize = 16;

/// Who posts to the queue pairs of a set. A peer has one set of its ends for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Poster {
    Host,
    Kernels,
}

impl Poster {
    /// The NICs of an agent that queue pairs of this set use: views of kernels have one key.
    fn nics(self, agent: &Inner) -> &[Device] {
        let nics = &agent.config.nics[..];
        match self {
            Self::Host => nics,
            Self::Kernels => &nics[..nics.len().min(1)],
        }
    }
}

/// `count` of them, on the NICs in turns.
fn endpoints(
    nics: &[Device],
    poster: Option<&Arc<dyn Gpu>>,
    count: usize,
    deadline: Duration,
) -> Result<Vec<Endpoint>, Error> {
    let config = poster.map_or_else(EndpointConfig::host, EndpointConfig::for_gpu);
    let config = config.send_depth(1024).recv_depth(0).timeout(deadline);
    nics.iter().cycle().take(count).map(|nic| nic.endpoint(&config)).collect()
}

fn handles(endpoints: &[Endpoint]) -> Vec<Vec<u8>> {
    endpoints.iter().map(|endpoint| endpoint.handle().to_bytes()).collect()
}

fn connect(endpoints: &[Endpoint], handles: &[Vec<u8>]) -> Result<(), Error> {
    endpoints
        .iter()
        .zip(handles)
        .try_for_each(|(endpoint, handle)| endpoint.connect(&EndpointHandle::from_bytes(handle)?))
}

/// The ends, at this agent, of queue pairs that peers have made. They end with the connection by which
/// they were asked for, and with no other of the same peer.
#[derive(Default)]
pub(crate) struct Answering(Mutex<HashMap<(Owner, Poster), Answered>>);

struct Answered {
    by: LinkId,
    /// The peer's ends, by which it names the set.
    theirs: Vec<Vec<u8>>,
    _ends: Vec<Endpoint>,
}

impl Answering {
    /// Makes ends for a peer's, in the place of those it had before.
    pub(crate) fn accept(
        &self,
        inner: &Inner,
        link: &Link,
        from: &Owner,
        bytes: &[u8],
    ) -> Result<Vec<u8>, String> {
        let (poster, theirs): (Poster, Vec<Vec<u8>>) =
            postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        if !(1..=MOST_PAIRS).contains(&theirs.len()) {
            return Err(format!("{} queue pairs, expected 1 to {MOST_PAIRS}", theirs.len()));
        }
        let nics = poster.nics(inner);
        if nics.is_empty() {
            return Err("this agent has no NIC".to_owned());
        }
        let say = |error: Error| error.to_string();
        let ends = endpoints(nics, None, theirs.len(), inner.config.deadline).map_err(say)?;
        connect(&ends, &theirs).map_err(say)?;
        let own = postcard::to_stdvec(&handles(&ends)).map_err(|error| error.to_string())?;
        let answered = Answered { by: link.id, theirs, _ends: ends };
        lock(&self.0).insert((from.clone(), poster), answered);
        Ok(own)
    }

    /// Ends a set that the peer has given up, unless it has had another made in its place. When this
    /// returns, nothing that was sent to it lands any more.
    pub(crate) fn end(&self, from: &Owner, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (poster, theirs): (Poster, Vec<Vec<u8>>) =
            postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        let mut answering = lock(&self.0);
        let key = (from.clone(), poster);
        let ended = answering.get(&key).is_some_and(|answered| answered.theirs == theirs);
        let ended = if ended { answering.remove(&key) } else { None };
        drop(answering);
        drop(ended);
        Ok(Vec::new())
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// The connection has ended.
    pub(crate) fn forget(&self, link: &Link) {
        lock(&self.0).retain(|_, answered| answered.by != link.id);
    }
}

/// The queue pairs to a peer, to which the host or kernels post.
pub(crate) struct Pairs {
    poster: Poster,
    made: Made<Arc<Set>>,
}

/// Connected queue pairs.
pub(crate) struct Set {
    ends: Vec<Endpoint>,
    /// The connection by which they were asked for, and their name there.
    link: Arc<Link>,
    name: Vec<u8>,
}

impl Deref for Set {
    type Target = [Endpoint];

    fn deref(&self) -> &[Endpoint] {
        &self.ends
    }
}

impl Pairs {
    pub(crate) fn new(poster: Poster) -> Self {
        Self { poster, made: Made::default() }
    }

    /// As many as the agent's configuration says, connected.
    pub(crate) fn get(
        &self,
        agent: &Arc<Inner>,
        peer: &Arc<Peer>,
        until: Instant,
    ) -> Result<Arc<Set>, AgentError> {
        let late = || {
            let what = format!("queue pairs to {}", peer.owner);
            AgentError::Timeout { what, after: agent.config.deadline }
        };
        self.made.get_or_make(until, || self.make(agent, peer, until).map(Arc::new), late)
    }

    fn make(
        &self,
        agent: &Arc<Inner>,
        peer: &Arc<Peer>,
        until: Instant,
    ) -> Result<Set, AgentError> {
        let left = || until.saturating_duration_since(Instant::now());
        let no_nic = || AgentError::NoPath {
            local: agent.owner.to_string(),
            remote: peer.owner.to_string(),
            tried: vec![Reason::new(PathKind::Network.to_string(), "no NIC was given")],
        };
        let nics = self.poster.nics(agent);
        if nics.is_empty() {
            return Err(no_nic());
        }
        let gpu = (self.poster == Poster::Kernels).then_some(&agent.gpu);
        let (count, deadline) = (agent.config.queue_pairs.max(nics.len()), agent.config.deadline);
        let ends = endpoints(nics, gpu, count, deadline)?;
        let link = agent.connect(peer, left())?;
        let refused = |why: String| AgentError::Refused { peer: peer.owner.to_string(), why };
        let name = postcard::to_stdvec(&(self.poster, handles(&ends)));
        let name = name.map_err(|error| refused(error.to_string()))?;
        let theirs = link.call(&peer.owner, Service::Pairs, &name, left())?;
        let theirs: Vec<Vec<u8>> =
            postcard::from_bytes(&theirs).map_err(|error| refused(error.to_string()))?;
        if theirs.len() != ends.len() {
            return Err(refused(format!("{} queue pairs for {}", theirs.len(), ends.len())));
        }
        connect(&ends, &theirs)?;
        Ok(Set { ends, link, name })
    }

    /// These are broken: the next transfer makes others.
    fn discard(&self, broken: &Arc<Set>) {
        self.made.discard(|pairs| Arc::ptr_eq(pairs, broken));
    }
}

struct Network {
    agent: Weak<Inner>,
    /// The memory as each NIC of the peer knows it.
    remote: Arc<[RemoteRegion]>,
}

impl Path for Network {
    fn start(
        &self,
        op: Op,
        peer: &Arc<Peer>,
        part: &Arc<Part>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let agent = self.agent.upgrade().ok_or_else(|| ended(&part.local.extent.owner))?;
        let pairs = peer.pairs.get(&agent, peer, limit.until())?;
        let keys = part.local.keys();
        if keys.is_empty() {
            return Err(part.local.extent.deregistered());
        }
        let chunks = part.pieces.iter().map(|piece| piece.len.div_ceil(CHUNK)).sum();
        let flight = Work {
            peer: peer.clone(),
            op,
            part: part.clone(),
            keys,
            remote: self.remote.clone(),
            ends: vec![0; pairs.len()],
            pairs,
            at: (0, 0),
            chunks,
            posted: 0,
            until: None,
            ending: None,
            patience: agent.config.silence,
            closed: 0,
            over: false,
        };
        Started::by(flight)
    }
}

/// Work requests under way.
struct Work {
    peer: Arc<Peer>,
    op: Op,
    part: Arc<Part>,
    /// The local memory as each NIC here knows it, and the peer's as each NIC there does.
    keys: Vec<Arc<MemoryRegion>>,
    remote: Arc<[RemoteRegion]>,
    pairs: Arc<Set>,
    /// Of each queue pair, one past the last work request.
    ends: Vec<u64>,
    /// The next piece, and how much of it has been posted.
    at: (usize, u64),
    /// Work requests in all, and how many have been posted.
    chunks: u64,
    posted: u64,
    /// It was cancelled: what is under way may end by itself until then.
    until: Option<Instant>,
    /// The queue pairs are ended by force.
    ending: Option<Ending>,
    /// How long the peer may take to confirm that.
    patience: Duration,
    /// Queue pairs in which a cancelled transfer has a last request that asks for its completion.
    closed: usize,
    over: bool,
}

/// The peer was asked to end its queue pairs. If the connection ends first, so do they.
struct Ending {
    asked: u64,
    since: Instant,
    /// What went wrong, if that is why.
    cause: Option<AgentError>,
}

impl Work {
    /// Posts as much as there is room for.
    fn post(&mut self) -> Result<(), Error> {
        let pairs = self.pairs.clone();
        while let Some(piece) = self.part.pieces.get(self.at.0).copied() {
            let turn = (self.posted % pairs.len() as u64) as usize;
            let len = (piece.len - self.at.1).min(CHUNK);
            let (key, remote) =
                (&self.keys[turn % self.keys.len()], self.remote[turn % self.remote.len()]);
            let local = key.local().slice(piece.local + self.at.1, len)?;
            let remote = remote.slice(piece.remote + self.at.1, len)?;
            // The last of each queue pair tells that all are done.
            let left = self.chunks - self.posted;
            let last = left <= pairs.len() as u64;
            let signaled = last || self.posted / pairs.len() as u64 % SIGNALED == SIGNALED - 1;
            let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            let poster = pairs[turn].host()?.with_timeout(Duration::ZERO);
            let posted = match self.op {
                Op::Read => poster.post_read(local, remote, flags),
                Op::Write => poster.post_write(local, remote, flags),
            };
            match posted {
                Ok(posted) => self.ends[turn] = posted.end(),
                Err(Error::Wait(WaitError::QueueFull { .. })) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.posted += 1;
            self.at.1 += len;
            if self.at.1 == piece.len {
                self.at = (self.at.0 + 1, 0);
            }
        }
        Ok(())
    }

    /// What was posted without asking for a completion gets a request behind it that does.
    fn end_early(&mut self) -> Result<bool, Error> {
        while let Some(endpoint) = self.pairs.get(self.closed) {
            match endpoint.host()?.with_timeout(Duration::ZERO).post_nop(SendFlags::SIGNALED) {
                Ok(behind) => self.ends[self.closed] = behind.end(),
                Err(Error::Wait(WaitError::QueueFull { .. })) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.closed += 1;
        }
        Ok(true)
    }

    fn advance(&mut self) -> Result<bool, Error> {
        let mut done = match self.until.is_some() {
            true => self.end_early()?,
            false => {
                self.post()?;
                self.posted == self.chunks
            }
        };
        for (endpoint, end) in self.pairs.iter().zip(&self.ends) {
            done &= endpoint.host()?.poll()? >= *end;
        }
        Ok(done)
    }
}

impl Work {
    /// Ends the queue pairs, so that the NIC here touches nothing any more. What is on its way lands until
    /// the peer's ends are gone, too.
    fn force(&mut self, cause: Option<AgentError>) {
        self.fail_pairs();
        let asked = self.pairs.link.ask(Service::EndPairs, &self.pairs.name);
        self.ending = Some(Ending { asked, since: Instant::now(), cause });
    }

    /// Whether the peer has ended its queue pairs, or is lost.
    fn has_ended(&mut self) -> Result<bool, AgentError> {
        let Some(ending) = &mut self.ending else { return Ok(false) };
        let link = &self.pairs.link;
        if link.answered(ending.asked).is_some() || link.is_lost() {
            self.over = true;
            return ending.cause.take().map_or(Ok(true), Err);
        }
        if ending.since.elapsed() > self.patience {
            let why = "it does not confirm the end of queue pairs";
            self.peer.lose(lost(&self.peer.owner, why));
        }
        Ok(false)
    }

    fn fail_pairs(&self) {
        self.peer.pairs.discard(&self.pairs);
        for endpoint in &**self.pairs {
            if let Err(error) = endpoint.fail() {
                tracing::warn!(%error, "a queue pair cannot be ended");
            }
        }
    }
}

impl Flight for Work {
    fn poll(&mut self) -> Result<bool, AgentError> {
        if self.ending.is_some() {
            return self.has_ended();
        }
        match self.advance() {
            Ok(true) => self.over = true,
            Ok(false) if self.until.is_some_and(|until| Instant::now() >= until) => {
                self.force(None);
            }
            Ok(false) => {}
            Err(error) => {
                let (peer, cause) = (self.peer.owner.to_string(), error.to_string());
                self.force(Some(AgentError::Path { path: PathKind::Network, peer, cause }));
            }
        }
        Ok(self.over)
    }

    fn cancel(&mut self, until: Instant) {
        self.until.get_or_insert(until);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.over && self.ending.is_none() {
            self.fail_pairs();
        }
    }
}

pub(super) fn network(pair: &Pair<'_>) -> Attempt {
    let no = |why: &str| vec![Reason::new(PathKind::Network.to_string(), why)];
    let nics = pair.agent.config.nics.len();
    if nics == 0 {
        return Err(no("no NIC was given to this agent"));
    }
    let range = pair.remote.range(pair.agent, pair.peer, pair.until);
    let first = range.map_err(|error| no(&error.to_string()))?.region();
    let first = first.ok_or_else(|| no("the peer has registered its memory with no NIC"))?;
    let others = pair.remote.info.rails.iter().map(|bytes| RemoteRegion::from_bytes(bytes));
    let remote: Result<Arc<[_]>, _> = std::iter::once(Ok(first)).chain(others).collect();
    let remote = remote.map_err(|error| no(&error.to_string()))?;
    let pairs = pair.peer.pairs.get(pair.agent, pair.peer, pair.until);
    let pairs = pairs.map_err(|error| no(&error.to_string()))?;
    let by = match (nics, remote.len()) {
        (1, 1) => format!("{} queue pairs", pairs.len()),
        (here, there) => format!("{} queue pairs, NICs: {here} here, {there} there", pairs.len()),
    };
    Ok((Box::new(Network { agent: Arc::downgrade(pair.agent), remote }), by))
}
