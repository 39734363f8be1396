//! Queue pairs of the agents' NICs: several to each peer, made when they are first needed and again
//! after an error. Queue pair `i` goes from NIC `i` here to NIC `i` there, each modulo how many there
//! are, with the keys that these know the memory by.

use super::wired::{AHEAD, Fault, ForcedEnd, Window, Wire, Wired, cause};
use super::{Cursor, Found, Job, Limit, Path, PathKind, Started};
use crate::AgentError;
use crate::control::{Asked, Service};
use crate::deadline::Deadline;
use crate::made::Made;
use crate::names::{Op, Owner};
use crate::remote::PeerMemory;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::Gpu;
use warpverbs_peer::{Reason, RemoteRange};
use warpverbs_transport::{
    Device, Endpoint, EndpointConfig, EndpointHandle, MemoryRegion, RemoteRegion, SendFlags,
    TransportError, WaitError,
};

/// Bytes of one work request at most: long pieces are spread over the queue pairs.
const CHUNK: u64 = 256 << 10;
/// At least one of this many work requests, or of this many bytes of them, is signalled, so that the
/// queue drains.
const SIGNALED: u32 = 16;
const SIGNALED_BYTES: u64 = 1 << 20;
/// Queue pairs that a peer may ask for.
pub(super) const MOST_PAIRS: usize = 16;

// While a transfer waits for completions to post more, one is asked for.
const _: () = assert!(MOST_PAIRS as u64 * SIGNALED_BYTES < AHEAD);

/// The poster to the queue pairs of a set. A peer has one set of its ends for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Poster {
    Host,
    Kernels,
}

/// The NICs of an agent, and how it uses them.
pub(crate) struct Nics {
    pub(crate) owner: Owner,
    pub(crate) nics: Vec<Device>,
    /// Queue pairs to each peer.
    pub(crate) queue_pairs: usize,
    /// On which kernels post.
    pub(crate) gpu: Arc<dyn Gpu>,
    /// Of what is posted.
    pub(crate) deadline: Duration,
    /// How long a peer may take to confirm that its queue pairs have ended.
    pub(crate) patience: Duration,
}

impl Nics {
    /// Those that queue pairs of this set use: views of kernels have one key.
    pub(super) fn of(&self, poster: Poster) -> &[Device] {
        match poster {
            Poster::Host => &self.nics,
            Poster::Kernels => &self.nics[..self.nics.len().min(1)],
        }
    }

    /// `count` queue pairs, on the NICs in turns.
    pub(super) fn endpoints(
        &self,
        nics: &[Device],
        poster: Option<&Arc<dyn Gpu>>,
        count: usize,
    ) -> Result<Vec<Endpoint>, TransportError> {
        let config = poster.map_or_else(EndpointConfig::host, EndpointConfig::for_gpu);
        let config = config.send_depth(1024).recv_depth(0).timeout(self.deadline);
        nics.iter().cycle().take(count).map(|nic| nic.endpoint(&config)).collect()
    }
}

pub(super) fn handles(endpoints: &[Endpoint]) -> Vec<Vec<u8>> {
    endpoints.iter().map(|endpoint| endpoint.handle().to_bytes()).collect()
}

pub(super) fn connect(endpoints: &[Endpoint], handles: &[Vec<u8>]) -> Result<(), TransportError> {
    endpoints
        .iter()
        .zip(handles)
        .try_for_each(|(endpoint, handle)| endpoint.connect(&EndpointHandle::from_bytes(handle)?))
}

/// The queue pairs to a peer, to which the host or kernels post.
pub(crate) struct Pairs {
    nics: Arc<Nics>,
    poster: Poster,
    made: Made<Arc<Set>>,
}

/// Connected queue pairs.
pub(crate) struct Set {
    ends: Vec<Endpoint>,
    /// The peer's name for them.
    name: Vec<u8>,
    end: ForcedEnd,
}

impl Deref for Set {
    type Target = [Endpoint];

    fn deref(&self) -> &[Endpoint] {
        &self.ends
    }
}

impl Pairs {
    pub(crate) fn new(nics: &Arc<Nics>, poster: Poster) -> Arc<Self> {
        Arc::new(Self { nics: nics.clone(), poster, made: Made::default() })
    }

    /// Makes them if there are none. No lock is held meanwhile.
    pub(crate) fn get(
        &self,
        peer: &Arc<dyn Asked>,
        deadline: &Deadline,
    ) -> Result<Arc<Set>, AgentError> {
        let what = || format!("queue pairs to {}", peer.owner());
        self.made.get_or_make(deadline, what, || self.make(peer, deadline).map(Arc::new))
    }

    fn make(&self, peer: &Arc<dyn Asked>, deadline: &Deadline) -> Result<Set, AgentError> {
        let nics = self.nics.of(self.poster);
        if nics.is_empty() {
            return Err(AgentError::NoPath {
                local: self.nics.owner.to_string(),
                remote: peer.owner().to_string(),
                tried: vec![Reason::new(PathKind::Network.to_string(), "no NIC was given")],
            });
        }
        let gpu = (self.poster == Poster::Kernels).then_some(&self.nics.gpu);
        let ends = self.nics.endpoints(nics, gpu, self.nics.queue_pairs.max(nics.len()))?;
        let link = peer.clone().link(deadline)?;
        let refused = |why: String| AgentError::Refused { peer: peer.owner().to_string(), why };
        let name = postcard::to_stdvec(&(self.poster, handles(&ends)));
        let name = name.map_err(|error| refused(error.to_string()))?;
        let theirs = link.call(peer.owner(), Service::Pairs, &name, deadline)?;
        let theirs: Vec<Vec<u8>> =
            postcard::from_bytes(&theirs).map_err(|error| refused(error.to_string()))?;
        if theirs.len() != ends.len() {
            return Err(refused(format!("{} queue pairs for {}", theirs.len(), ends.len())));
        }
        connect(&ends, &theirs).map_err(|error| {
            let peers_end = (Service::EndPairs, &name[..]);
            cause(error.into(), (&link, &**peer), peers_end, deadline)
        })?;
        Ok(Set { ends, name, end: ForcedEnd::new(link, self.nics.patience) })
    }
}

struct Network {
    pairs: Arc<Pairs>,
    /// The memory as each NIC of the peer knows it.
    remote: Arc<[RemoteRegion]>,
}

impl Path for Network {
    fn is_ready(&self, _: &Job) -> bool {
        self.pairs.made.get().is_some()
    }

    fn start(
        &self,
        peer: &Arc<dyn Asked>,
        job: &Arc<Job>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let set = self.pairs.get(peer, &limit.deadline)?;
        // Making it took time: an agent that ends has the peer confirm nothing that begins later.
        limit.control.check()?;
        Started::by(Wired::new(Work::new(peer, job, (&self.pairs, set), &self.remote)?))
    }
}

/// Work requests under way.
struct Work {
    peer: Arc<dyn Asked>,
    job: Arc<Job>,
    /// The local memory as each NIC here knows it, and the peer's as each NIC there does.
    keys: Vec<Arc<MemoryRegion>>,
    remote: Arc<[RemoteRegion]>,
    pairs: Arc<Pairs>,
    set: Arc<Set>,
    /// The requests in each queue pair.
    lanes: Vec<Lane>,
    window: Window,
    /// How far pieces have been posted.
    cursor: Cursor,
    /// Work requests in all, and how many have been posted.
    chunks: u64,
    posted: u64,
    /// Queue pairs in which a transfer that ends early has a last request that asks for its completion.
    closed: usize,
}

/// The work requests of a transfer in one queue pair.
#[derive(Clone, Default)]
struct Lane {
    /// Index of the request after the last one.
    end: u64,
    /// Requests and bytes after the last signalled request.
    silent: (u32, u64),
    /// The signalled requests: the index after each, and the bytes that it completes.
    telling: VecDeque<(u64, u64)>,
}

impl Lane {
    /// Whether the next request, of `bytes` bytes, is signalled.
    fn asks(&self, bytes: u64) -> bool {
        self.silent.0 + 1 >= SIGNALED || self.silent.1 + bytes >= SIGNALED_BYTES
    }

    fn posted(&mut self, end: u64, bytes: u64, tells: bool) {
        self.end = end;
        self.silent = (self.silent.0 + 1, self.silent.1 + bytes);
        if tells {
            self.telling.push_back((end, std::mem::take(&mut self.silent).1));
        }
    }

    /// Bytes newly known to be complete: everything before `end` is.
    fn ended(&mut self, end: u64) -> u64 {
        let told = |&(at, bytes): &(u64, u64)| (at <= end).then_some(bytes);
        let mut sum = 0;
        while let Some(bytes) = self.telling.front().and_then(told) {
            sum += bytes;
            self.telling.pop_front();
        }
        sum
    }
}

impl Work {
    fn new(
        peer: &Arc<dyn Asked>,
        job: &Arc<Job>,
        (pairs, set): (&Arc<Pairs>, Arc<Set>),
        remote: &Arc<[RemoteRegion]>,
    ) -> Result<Self, AgentError> {
        let keys = job.local.keys();
        if keys.is_empty() {
            return Err(job.local.extent.deregistered());
        }
        Ok(Self {
            peer: peer.clone(),
            job: job.clone(),
            keys,
            remote: remote.clone(),
            pairs: pairs.clone(),
            lanes: vec![Lane::default(); set.len()],
            window: Window::default(),
            set,
            cursor: Cursor::default(),
            chunks: job.pieces.iter().map(|piece| piece.len.div_ceil(CHUNK)).sum(),
            posted: 0,
            closed: 0,
        })
    }

    /// Posts as much as there is room for.
    fn post(&mut self) -> Result<(), TransportError> {
        let set = self.set.clone();
        while self.window.is_open()
            && let Some(next) = self.cursor.next(&self.job.pieces, CHUNK)
        {
            let turn = (self.posted % set.len() as u64) as usize;
            let (key, remote) =
                (&self.keys[turn % self.keys.len()], self.remote[turn % self.remote.len()]);
            let local = key.local().slice(next.local, next.len)?;
            let remote = remote.slice(next.remote, next.len)?;
            // The last request of each queue pair is signalled.
            let left = self.chunks - self.posted;
            let last = left <= set.len() as u64;
            let asks = self.lanes[turn].asks(next.len);
            let signaled = last || asks;
            let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            let poster = set[turn].host()?.with_timeout(Duration::ZERO);
            let posted = match self.job.op {
                Op::Read => poster.post_read(local, remote, flags),
                Op::Write => poster.post_write(local, remote, flags),
            };
            match posted {
                Ok(posted) => self.lanes[turn].posted(posted.end(), next.len, asks),
                Err(TransportError::Wait(WaitError::QueueFull { .. })) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.window.begun(next.len);
            self.posted += 1;
            self.cursor.pass(&self.job.pieces, next.len);
        }
        Ok(())
    }

    /// Posts a signalled request behind unsignalled ones.
    fn end_early(&mut self) -> Result<bool, TransportError> {
        while let Some(endpoint) = self.set.get(self.closed) {
            match endpoint.host()?.with_timeout(Duration::ZERO).post_nop(SendFlags::SIGNALED) {
                Ok(behind) => self.lanes[self.closed].end = behind.end(),
                Err(TransportError::Wait(WaitError::QueueFull { .. })) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.closed += 1;
        }
        Ok(true)
    }

    fn look(&mut self, stopping: bool) -> Result<bool, TransportError> {
        let mut done = match stopping {
            true => self.end_early()?,
            false => {
                self.post()?;
                self.posted == self.chunks
            }
        };
        for (endpoint, lane) in self.set.iter().zip(&mut self.lanes) {
            let end = endpoint.host()?.poll()?;
            let bytes = lane.ended(end);
            self.window.ended(bytes);
            self.job.advance(bytes);
            done &= end >= lane.end;
        }
        Ok(done)
    }
}

impl Wire for Work {
    fn advance(&mut self, stopping: bool) -> Result<bool, Fault> {
        let looked = self.look(stopping);
        looked.map_err(|error| Fault { error: self.job.failed(&error), ends_all: true })
    }

    /// Ends the queue pairs, so that the NIC here touches nothing any more. Bytes on their way land
    /// until the peer's ends are gone, too.
    fn break_off(&mut self) {
        self.pairs.made.discard(|set| Arc::ptr_eq(set, &self.set));
        for endpoint in &**self.set {
            if let Err(error) = endpoint.fail() {
                tracing::warn!(%error, "a queue pair cannot be ended");
            }
        }
        self.set.end.ask(Service::EndPairs, &self.set.name);
    }

    fn ended(&self) -> Option<Result<(), AgentError>> {
        self.set.end.result(&*self.peer, "queue pairs")
    }
}

/// To memory of a peer that has registered it with a NIC.
pub(crate) fn network<'a>(
    pairs: &Arc<Pairs>,
    remote: &PeerMemory,
    range: impl FnOnce() -> Result<&'a RemoteRange, AgentError>,
    (peer, deadline): (&Arc<dyn Asked>, &Deadline),
) -> Found {
    let no = |why: &dyn std::fmt::Display| vec![why.to_string()];
    let here = pairs.nics.nics.len();
    if here == 0 {
        return Err(no(&"no NIC was given to this agent"));
    }
    let first = range().map_err(|error| no(&error))?.region();
    let first = first.ok_or_else(|| no(&"the peer has registered its memory with no NIC"))?;
    let others = remote.info.rails.iter().map(|bytes| RemoteRegion::from_bytes(bytes));
    let remote: Result<Arc<[_]>, _> = std::iter::once(Ok(first)).chain(others).collect();
    let remote = remote.map_err(|error| no(&error))?;
    let set = pairs.get(peer, deadline).map_err(|error| no(&error))?;
    let by = match (here, remote.len()) {
        (1, 1) => format!("{} queue pairs", set.len()),
        (here, there) => format!("{} queue pairs, NICs: {here} here, {there} there", set.len()),
    };
    Ok((Box::new(Network { pairs: pairs.clone(), remote }), by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Flight;
    use crate::{Agent, AgentConfig};
    use warpverbs_transport::Context;

    /// Ends a hang, on a slow machine too.
    const SOON: Duration = Duration::from_secs(600);

    /// One call posts only what there is room for, even if the NIC completes requests during it.
    #[test]
    fn a_transfer_has_a_bounded_number_of_bytes_ahead() {
        let nic = Context::new().unwrap().open("soft").unwrap();
        let config = || AgentConfig::default().nic(&nic).require(PathKind::Network);
        let agent = |name| Agent::new(name, config()).unwrap();
        let (a, b) = (agent("ahead-a"), agent("ahead-b"));
        let (len, times) = (1 << 20, 512);
        let mut bytes = vec![0; len];
        rand::fill(&mut bytes[..]);
        let ours = a.register(bytes.clone(), "m").unwrap();
        let theirs = b.register(vec![0; len], "m").unwrap();
        a.load_metadata(&b.metadata().unwrap()).unwrap();
        let (here, there) = (
            ours.blocks_at(&vec![0; times], len as u64).unwrap(),
            theirs.blocks_at(&vec![0; times], len as u64).unwrap(),
        );
        let write = a.transfer(Op::Write, &here, &there).unwrap();
        let peer = a.shared.peers.peer("ahead-b").unwrap();
        let (asked, deadline) = (peer.asked(), Deadline::after(SOON));
        let set = peer.pairs.get(&asked, &deadline).unwrap();
        let remote: Arc<[_]> = [theirs.nic().unwrap().remote()].into();
        let job = &write.shared().plan.parts[0].job;
        let mut work = Work::new(&asked, job, (&peer.pairs, set), &remote).unwrap();
        work.post().unwrap();
        let ahead = work.posted * CHUNK;
        assert!((AHEAD..AHEAD + CHUNK).contains(&ahead), "{ahead} bytes are ahead");
        // The rest goes on as the NIC ends these.
        let mut flight = Wired::new(work);
        while !flight.poll().unwrap() {
            assert!(!deadline.0.passed(), "it does not end");
            std::thread::yield_now();
        }
        assert!(theirs.to_vec().unwrap() == bytes);
    }
}
