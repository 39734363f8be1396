//! TCP sockets of `warpverbs-devmem`: for peers of other hosts that no NIC reaches.
//!
//! ```text
//! initiator                                   target
//!   Call Tcp       ── control connection ──▶  ends the connections of this control connection, if
//!                                             there are any; listens, from the first such call on
//!                  ◀───── port, secret        a secret for one connection
//!   sockets, secret ────────────────────────▶ accepts; a thread serves the connection
//!   Call TcpKey    ── control connection ──▶  the memory's key
//!   write, read     ────────────────────────▶ checks key and bounds, places bytes
//!   Call Tcp, secret ─ control connection ─▶  ends that connection
//!                  ◀───── nothing is placed or read any more
//! ```
//!
//! The initiator moves bytes while its transfers are looked at, so it needs no thread.
//!
//! **The end of a transfer.** Of one that fails, is late or is cancelled, nothing more is posted, and what
//! is under way may end by itself, so that the transfers beside it go on. If it does not in time, or if
//! the connection fails, this end closes the sockets and asks the target, by the control connection, to
//! end the connection; only its answer makes the transfer terminal. A target that does not answer is
//! lost. It ends what is left of the connection before it answers the first question of another control
//! connection of this agent (`Serving::fence`), so nothing that comes later is overwritten.

mod server;

pub(crate) use server::Serving;

mod work;

use super::{Attempt, Limit, Pair, Path, PathKind, Started};
use crate::config::TcpReceive;
use crate::control::frame::Service;
use crate::control::link::{Link, ended, lost};
use crate::inner::Inner;
use crate::lock;
use crate::peer::{Peer, PeerMemory};
use crate::prepared::Part;
use crate::{AgentError, Op};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use warpverbs_devmem::transport::protocol::LEAST_WINDOW;
use warpverbs_devmem::transport::{
    BoundQueues, Config, Connection, Endpoint, Receive, RemoteMemory, TransportError,
};
use warpverbs_devmem::unpack::UnpackConfig;
use warpverbs_peer::Reason;
use work::Work;

/// Where this agent receives, at either end: queues can be bound only once.
fn receive(agent: &Inner) -> Receive {
    let choose = || match &agent.config.tcp_receive {
        TcpReceive::Host => Receive::default(),
        TcpReceive::Device(device) => Receive::Device(device.clone()),
        TcpReceive::Queues(queues) => {
            let unpack = UnpackConfig::default();
            Receive::choose(Some(queues), BoundQueues::BYTES, &agent.gpu, unpack)
        }
    };
    agent.tcp_receive.get_or_init(choose).clone()
}

/// How a peer connects, as it travels by the control connection.
#[derive(Serialize, Deserialize)]
pub(crate) struct Invitation {
    port: u16,
    /// For one connection.
    secret: [u8; 16],
}

/// The connection to a peer, made when it is first needed and again after an error.
#[derive(Default)]
pub(crate) struct Sockets {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
enum Slot {
    #[default]
    None,
    /// A thread is making it.
    Making,
    Made(Arc<Connected>),
}

struct Connected {
    connection: Connection,
    /// By which the connection was asked for.
    link: Arc<Link>,
    /// A target that does not confirm the end in this time is lost.
    patience: Duration,
    end: Mutex<End>,
}

/// The end of a connection at the target.
#[derive(Default)]
enum End {
    #[default]
    NotAsked,
    /// The number of the call, and when it was made.
    Asked(u64, Instant),
    Confirmed,
}

/// Says how making a connection has ended, also if the thread that makes it panics.
struct Maker<'a> {
    sockets: &'a Sockets,
    made: Option<Arc<Connected>>,
}

impl Drop for Maker<'_> {
    fn drop(&mut self) {
        *lock(&self.sockets.slot) = self.made.take().map_or(Slot::None, Slot::Made);
        self.sockets.changed.notify_all();
    }
}

fn late(peer: &Peer, after: Duration) -> AgentError {
    AgentError::Timeout { what: format!("a TCP connection to {}", peer.owner), after }
}

impl Sockets {
    /// One thread makes the connection, without a lock; others wait for it, each until its deadline.
    fn get(
        &self,
        agent: &Arc<Inner>,
        peer: &Arc<Peer>,
        until: Instant,
    ) -> Result<Arc<Connected>, AgentError> {
        let start = Instant::now();
        let mut slot = lock(&self.slot);
        loop {
            match &*slot {
                Slot::Made(made) => return Ok(made.clone()),
                Slot::None => break,
                Slot::Making => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late(peer, start.elapsed()));
            }
            let waited = self.changed.wait_timeout(slot, left);
            slot = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *slot = Slot::Making;
        drop(slot);
        let mut maker = Maker { sockets: self, made: None };
        let made = Arc::new(Connected::make(agent, peer, until)?);
        // A peer that was lost meanwhile has closed no connection, since there was none.
        peer.check()?;
        maker.made = Some(made.clone());
        Ok(made)
    }

    /// The next transfer makes another connection in the place of this one.
    fn discard(&self, broken: &Arc<Connected>) {
        let mut slot = lock(&self.slot);
        if matches!(&*slot, Slot::Made(made) if Arc::ptr_eq(made, broken)) {
            *slot = Slot::None;
        }
    }

    /// The peer is lost: the sockets are closed when no transfer uses them any more.
    pub(crate) fn close(&self) {
        let mut slot = lock(&self.slot);
        if matches!(&*slot, Slot::Made(_)) {
            *slot = Slot::None;
        }
    }
}

impl Connected {
    fn make(agent: &Arc<Inner>, peer: &Arc<Peer>, until: Instant) -> Result<Self, AgentError> {
        let start = Instant::now();
        let left = || {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(late(peer, start.elapsed())) } else { Ok(left) }
        };
        let refused = |why: String| AgentError::Refused { peer: peer.owner.to_string(), why };
        let link = agent.connect(peer, left()?)?;
        let bytes = link.call(&peer.owner, Service::Tcp, &[], left()?)?;
        let Invitation { port, secret } =
            postcard::from_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
        let host = link.stream.peer_addr();
        let host = host.map_err(|error| AgentError::system("getpeername", error))?;
        let failed = |error: TransportError| failed(peer, &error);
        let endpoint = Endpoint::receiving(config(agent).secret(secret), receive(agent));
        let endpoint = endpoint.map_err(failed)?;
        let address = SocketAddr::new(host.ip(), port);
        let connection = endpoint.connect(address, left()?).map_err(failed)?;
        let patience = agent.config.silence;
        Ok(Self { connection, link, patience, end: Mutex::default() })
    }

    /// Closes the sockets, and asks the target to end the connection.
    fn end(&self) {
        self.connection.abort();
        let mut end = lock(&self.end);
        if matches!(*end, End::NotAsked) {
            let call = self.link.ask(Service::Tcp, self.connection.secret());
            *end = End::Asked(call, Instant::now());
        }
    }

    /// After [`Connected::end`]: whether the target places and reads nothing any more, or is lost.
    fn has_ended(&self, peer: &Peer) -> bool {
        let mut end = lock(&self.end);
        let End::Asked(call, since) = *end else { return true };
        if self.link.answered(call).is_some() || self.link.is_lost() {
            *end = End::Confirmed;
            return true;
        }
        if since.elapsed() > self.patience {
            let why = "it does not confirm the end of a TCP connection";
            peer.lose(lost(&peer.owner, why));
        }
        false
    }
}

/// How both ends begin connections: nobody sends messages by them.
fn config(agent: &Inner) -> Config {
    Config::default().sockets(agent.config.tcp_sockets).window(LEAST_WINDOW)
}

/// The key of a peer's memory: asked for once.
fn key(
    agent: &Arc<Inner>,
    peer: &Arc<Peer>,
    memory: &PeerMemory,
    until: Instant,
) -> Result<RemoteMemory, AgentError> {
    if let Some(key) = memory.tcp_key.get() {
        return Ok(*key);
    }
    let left = || until.saturating_duration_since(Instant::now());
    let link = agent.connect(peer, left())?;
    let id = memory.extent.id.to_le_bytes();
    let bytes = link.call(&peer.owner, Service::TcpKey, &id, left())?;
    let refused = |why: String| AgentError::Refused { peer: peer.owner.to_string(), why };
    let key = RemoteMemory::from_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
    Ok(*memory.tcp_key.get_or_init(|| key))
}

fn failed(peer: &Peer, cause: &TransportError) -> AgentError {
    let (peer, cause) = (peer.owner.to_string(), cause.to_string());
    AgentError::Path { path: PathKind::Tcp, peer, cause }
}

struct Tcp {
    agent: Weak<Inner>,
}

impl Path for Tcp {
    fn start(
        &self,
        op: Op,
        peer: &Arc<Peer>,
        part: &Arc<Part>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let agent = self.agent.upgrade().ok_or_else(|| ended(&part.local.extent.owner))?;
        let (lease, until) = (part.remote.lease(peer)?, limit.until());
        let made = peer.sockets.get(&agent, peer, until)?;
        let remote = key(&agent, peer, &part.remote, until)?;
        Started::by(Work::new(op, (peer.clone(), lease), part.clone(), made, remote))
    }
}

pub(super) fn tcp(pair: &Pair<'_>) -> Attempt {
    let no = |why: AgentError| vec![Reason::new(PathKind::Tcp.to_string(), why)];
    let until = pair.until;
    let made = pair.peer.sockets.get(pair.agent, pair.peer, until).map_err(no)?;
    key(pair.agent, pair.peer, pair.remote, until).map_err(no)?;
    Ok((Box::new(Tcp { agent: Arc::downgrade(pair.agent) }), made.connection.explain()))
}
