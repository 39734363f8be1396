//! An agent: its memory, its peers, and the calls on both.

use crate::control::{self, Asked, Notification};
use crate::deadline::Deadline;
use crate::memories::Registration;
use crate::memory::Memory;
use crate::metadata::Content;
use crate::names::{Op, Owner};
use crate::parts::Parts;
use crate::plan::list::BlockList;
use crate::plan::{self, Indexed, spans};
use crate::prepared::Prepared;
use crate::remote_memory::{PeerMemories, RemoteMemory};
use crate::route::Explanation;
use crate::sent::Sent;
use crate::stream::{Sending, StreamConfig, StreamReceiver, StreamSender};
use crate::transfer::Transfer;
use crate::{AgentConfig, AgentError, Counters, PostOptions};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::{HostBuf, Kind};

/// Bytes that `explain` reads to measure a path.
const PROBE: u64 = 1 << 20;

/// Registers memory, knows peers, moves blocks. Cloning shares it; all calls may be made by any
/// number of threads.
#[derive(Clone)]
pub struct Agent {
    pub(crate) shared: Arc<Parts>,
}

impl Agent {
    /// Makes an agent. Its name is what peers call it.
    ///
    /// # Errors
    /// The name or a setting is wrong, or the system does not give what an agent needs.
    pub fn new(name: &str, config: AgentConfig) -> Result<Self, AgentError> {
        let shared = Arc::new(Parts::new(name, config)?);
        // From here on, dropping stops the thread.
        control::start(shared.desk.clone())?;
        Ok(Self { shared })
    }

    #[cfg(test)]
    pub(crate) fn desk(&self) -> &crate::serve::Desk {
        &self.shared.desk
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.control.own.owner.name
    }

    /// Its name and generation, by which lists of blocks name it.
    pub fn owner(&self) -> &Owner {
        &self.shared.control.own.owner
    }

    /// Registers memory under a label, by which peers find it. Labels need not be unique: the newest
    /// of a label is found.
    ///
    /// # Errors
    /// There are no bytes, the label is too long, or the NIC refuses.
    pub fn register(
        &self,
        memory: impl Into<Memory>,
        label: &str,
    ) -> Result<Registration, AgentError> {
        self.shared.memories.register(memory.into(), label)
    }

    /// Allocates `len` zeroed bytes that other processes of this machine can map, and registers them:
    /// host memory if the agent's device is the host SIMT device, GPU memory if it is a GPU.
    ///
    /// # Errors
    /// There is not enough memory; otherwise as [`Agent::register`].
    pub fn alloc(&self, len: u64, label: &str) -> Result<Registration, AgentError> {
        alloc_on(self, &self.shared.router.gpu, len, label)
    }

    /// As [`Agent::alloc`], always host memory.
    ///
    /// # Errors
    /// As for [`Agent::alloc`].
    pub fn alloc_host(&self, len: u64, label: &str) -> Result<Registration, AgentError> {
        alloc_on(self, &self.shared.router.host, len, label)
    }

    /// The metadata of this agent and of all its registered memory, which peers load with
    /// [`Agent::load_metadata`]. The bytes may travel by any means.
    ///
    /// # Errors
    /// The metadata is longer than 4 GiB.
    pub fn metadata(&self) -> Result<Vec<u8>, AgentError> {
        Ok(self.shared.memories.tell_all()?.to_vec())
    }

    /// As [`Agent::metadata`], with only this memory, which a peer adds to the memory that it knows. With
    /// no memory it holds the agent's addresses alone.
    ///
    /// # Errors
    /// As for [`Agent::metadata`].
    pub fn partial_metadata(&self, these: &[&Registration]) -> Result<Vec<u8>, AgentError> {
        let memories = these.iter().filter_map(|one| one.memory().info()).collect();
        Ok(self.shared.memories.tell(Content::Partial, memories)?)
    }

    /// Bytes that make a peer forget this agent when it loads them.
    ///
    /// # Errors
    /// As for [`Agent::metadata`].
    pub fn invalidation(&self) -> Result<Vec<u8>, AgentError> {
        Ok(self.shared.memories.tell(Content::Gone, Vec::new())?)
    }

    /// Loads a peer's metadata and returns the peer's name. Metadata of another generation of the agent
    /// replaces the known one, whose transfers fail from then on. If the new metadata is of the older
    /// generation by their hosts' clocks, the known generation is asked first, for up to
    /// [`Agent::deadline`]; if it answers, it stays.
    ///
    /// # Errors
    /// The bytes are not metadata, are damaged, are of another job or of another agent of this name, or are of an older
    /// generation than one that still runs.
    pub fn load_metadata(&self, bytes: &[u8]) -> Result<String, AgentError> {
        self.shared.peers.load(bytes, None, &Deadline::after(self.deadline()))
    }

    /// The address at which it serves metadata and takes notifications.
    pub fn address(&self) -> SocketAddr {
        self.shared.control.address()
    }

    /// Fetches the metadata of the agent that listens at `address`, loads it, and returns the peer's
    /// name. An address alone does not authenticate an agent, so both need the token of one job
    /// ([`AgentConfig::token`]). Without one metadata travels by other means, such as an
    /// [`Exchange`](crate::Exchange).
    ///
    /// # Errors
    /// No token is set; no agent answers at `address` in time; the tokens differ; otherwise as
    /// [`Agent::load_metadata`].
    pub fn fetch_metadata(
        &self,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<String, AgentError> {
        let deadline = Deadline::after(timeout);
        let fetched = control::fetch(&self.shared.control.own, address, timeout)?;
        self.shared.peers.load(&fetched, None, &deadline)
    }

    /// Sends `metadata`, the result of one of this agent's metadata calls, to the agent that listens at
    /// `address`, which loads it.
    ///
    /// # Errors
    /// As for [`Agent::fetch_metadata`], at the peer.
    pub fn send_metadata(
        &self,
        address: SocketAddr,
        metadata: &[u8],
        timeout: Duration,
    ) -> Result<(), AgentError> {
        control::load(&self.shared.control.own, address, timeout, metadata)
    }

    /// Waits until metadata of an agent of this name is loaded.
    ///
    /// # Errors
    /// It is not in time.
    pub fn wait_peer(&self, peer: &str, timeout: Duration) -> Result<(), AgentError> {
        self.shared.peers.wait(peer, timeout)
    }

    /// Connects to a peer, which its first transfer or notification would do otherwise.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn connect(&self, peer: &str, timeout: Duration) -> Result<(), AgentError> {
        let peer = self.shared.peers.peer(peer)?;
        match peer.is_itself {
            true => peer.check(),
            false => peer.link(&Deadline::after(timeout)).map(drop),
        }
    }

    /// Sends a notification that belongs to no transfer, and waits until the peer has it.
    ///
    /// # Errors
    /// The notification is too long, the peer has no room for it in time, or the peer is lost; in the
    /// last case it may have arrived.
    pub fn notify(&self, peer: &str, bytes: &[u8], timeout: Duration) -> Result<(), AgentError> {
        let sent = self.send_notification(peer, bytes, timeout)?;
        while !sent.wait(timeout)? {}
        Ok(())
    }

    /// As [`Agent::notify`], and leaves it to the caller to wait.
    ///
    /// # Errors
    /// As for [`Agent::notify`], as far as it is known before the peer has answered.
    pub fn send_notification(
        &self,
        peer: &str,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<Sent, AgentError> {
        let deadline = Deadline::after(timeout);
        let peer = self.shared.peers.peer(peer)?;
        let name = peer.name.to_string();
        if peer.is_itself {
            self.shared.control.notify_itself(bytes.to_vec())?;
            return Ok(Sent::new(None, name, deadline));
        }
        let link = peer.clone().link(&deadline)?;
        let receipt = link.notify(bytes, self.shared.router.config.window as usize)?;
        Ok(Sent::new(Some((link, receipt)), name, deadline))
    }

    /// Whether a notification of these bytes has come from a peer; if so, it is taken.
    pub fn check_remote_done(&self, peer: &str, tag: &[u8]) -> bool {
        self.shared.control.inbox.take_first(|one| one.is(peer, tag)).is_some()
    }

    /// As [`Agent::check_remote_done`], and waits for it.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait_remote_done(
        &self,
        peer: &str,
        tag: &[u8],
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let what = || format!("notification {:?} of {peer}", String::from_utf8_lossy(tag));
        let (inbox, deadline) = (&self.shared.control.inbox, Deadline::after(timeout));
        inbox.wait_first(&deadline, what, |one| one.is(peer, tag)).map(drop)
    }

    /// The oldest notification of any peer, if there is one.
    pub fn next_notification(&self) -> Option<Notification> {
        self.shared.control.inbox.take_first(|_| true)
    }

    /// As [`Agent::next_notification`], and waits for it.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait_notification(&self, timeout: Duration) -> Result<Notification, AgentError> {
        let (inbox, deadline) = (&self.shared.control.inbox, Deadline::after(timeout));
        inbox.wait_first(&deadline, || "notification".to_owned(), |_| true)
    }

    /// Whether metadata of an agent of this name is loaded, and the agent is not known to be lost.
    pub fn knows(&self, peer: &str) -> bool {
        self.shared.peers.knows(peer)
    }

    /// Forgets a peer. Its transfers fail.
    ///
    /// # Errors
    /// No peer has this name.
    pub fn remove_peer(&self, peer: &str) -> Result<(), AgentError> {
        self.shared.peers.remove(peer)
    }

    /// The newest memory that a peer registered under a label, as far as it is known here.
    ///
    /// # Errors
    /// No such peer, or no such memory.
    pub fn remote(&self, peer: &str, label: &str) -> Result<RemoteMemory, AgentError> {
        Ok(RemoteMemory(self.shared.peers.peer(peer)?.memory_called(label)?))
    }

    /// The registered memory of a peer, as far as it is known here.
    ///
    /// # Errors
    /// No such peer, or it is lost.
    pub fn memories_of(&self, peer: &str) -> Result<PeerMemories, AgentError> {
        PeerMemories::of(self.shared.peers.peer(peer)?)
    }

    /// Checks a list, of this agent's memory or of a peer's, so that transfers can be made of it.
    ///
    /// # Errors
    /// It names memory that is not registered, or ranges that are not inside it.
    pub fn prepare(&self, list: &BlockList) -> Result<Prepared, AgentError> {
        let (side, mut slots) = self.shared.resolved(list)?;
        Ok(Prepared { blocks: plan::blocks(list, &mut slots), side })
    }

    /// A transfer between blocks of prepared lists: the block `local_index[i]` here, and
    /// `remote_index[i]` at the peer. It can be posted any number of times.
    ///
    /// # Errors
    /// Indices or lengths do not fit, or no path leads there.
    pub fn prepared_transfer(
        &self,
        op: Op,
        local: &Prepared,
        local_index: &[u32],
        remote: &Prepared,
        remote_index: &[u32],
    ) -> Result<Transfer, AgentError> {
        let here = Indexed { blocks: &local.blocks, index: local_index };
        let there = Indexed { blocks: &remote.blocks, index: remote_index };
        self.shared.transfer_of(op, (&local.side, &remote.side), || spans(here, there))
    }

    /// A transfer between all blocks of two lists, in order.
    ///
    /// # Errors
    /// As for [`Agent::prepare`] and [`Agent::prepared_transfer`].
    pub fn transfer(
        &self,
        op: Op,
        local: &BlockList,
        remote: &BlockList,
    ) -> Result<Transfer, AgentError> {
        self.shared.transfer(op, local, remote)
    }

    /// The path from memory of this agent to that of a peer, why no better path is taken, and its rate in
    /// bytes per second. If the rate is not known, it is measured by reading up to 1 MiB of the peer's
    /// memory.
    ///
    /// # Errors
    /// No path leads to the memory, or the path failed.
    pub fn explain(
        &self,
        local: &Registration,
        remote: &RemoteMemory,
    ) -> Result<Explanation, AgentError> {
        let peer = self.shared.peers.peer_of(remote.owner())?;
        let deadline = Deadline::after(self.deadline());
        let route = self.shared.router.route(local.memory(), &peer, &remote.0, &deadline)?;
        let len = local.len().min(remote.len()).min(PROBE);
        if route.rate.get().is_none() && len >= 1 << 18 {
            // Of the same kind as the local memory, so that the path is the same.
            let scratch = match local.buffer().region().kind() {
                Kind::Host => Buffer::of_region(HostBuf::region(len as usize)?),
                _ => self.shared.router.gpu.alloc(len as usize, Place::Device)?,
            };
            let into = self.register(scratch, "scratch of a probe")?;
            let (list, from) = (into.blocks(0, len, 1)?, remote.blocks(0, len, 1)?);
            let probe = self.transfer(Op::Read, &list, &from)?;
            for _ in 0..2 {
                probe.post(PostOptions::new())?;
                probe.wait(self.deadline())?;
            }
        }
        Ok(route.explain())
    }

    /// Offers a stream: the next peer that calls [`Agent::stream_to`] with this name becomes its sender.
    ///
    /// # Errors
    /// A setting is wrong, another stream of this name still waits for its sender, or memory cannot be
    /// allocated.
    pub fn stream(
        &self,
        name: &str,
        mut config: StreamConfig,
    ) -> Result<StreamReceiver, AgentError> {
        let bytes = config.bytes()?;
        let label = format!("stream {name}");
        let ring = match config.memory.take() {
            None => self.alloc(bytes, &label)?,
            Some(memory) => self.register(memory, &label)?,
        };
        StreamReceiver::new(&self.shared.desk.streams, ring, name, &config)
    }

    /// Opens a peer's stream, and waits until the peer offers it.
    ///
    /// # Errors
    /// The peer does not offer it in time; the peer is unknown or lost; no path leads to its ring.
    pub fn stream_to(
        &self,
        peer: &str,
        name: &str,
        timeout: Duration,
    ) -> Result<StreamSender, AgentError> {
        let sending: Arc<dyn Sending> = self.shared.clone();
        StreamSender::new(&sending, peer, name, &Deadline::after(timeout))
    }

    /// Its counts since its start, and all that there is now. Counting is always on.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Where it serves its counters by HTTP, if [`AgentConfig::metrics`] says so and the address was free.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.shared.metrics.as_ref()?.address()
    }

    /// The file into which it writes its counters, if [`AgentConfig::metrics`] says so and it can.
    pub fn metrics_file(&self) -> Option<&Path> {
        self.shared.metrics.as_ref()?.file()
    }

    /// How long everything that waits for a peer may take unless it is given its own time.
    pub fn deadline(&self) -> Duration {
        self.shared.router.config.deadline
    }
}

fn alloc_on(
    agent: &Agent,
    gpu: &Arc<dyn Gpu>,
    len: u64,
    label: &str,
) -> Result<Registration, AgentError> {
    let arena = gpu.arena(len.max(1))?;
    let segment = arena.commit(0, arena.len())?;
    let exact = usize::try_from(len).unwrap_or(usize::MAX);
    agent.register(segment.buffer().slice(0, exact)?, label)
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({})", self.shared.control.own.owner)
    }
}
