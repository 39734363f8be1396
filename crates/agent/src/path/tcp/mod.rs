//! TCP sockets of `warpverbs-devmem`: for peers of other hosts that no NIC reaches.
//!
//! ```text
//! initiator                                   target
//!   Call Tcp       ── control connection ──▶  listens, from the first such call on
//!                  ◀───── port, secret, ticket
//!   sockets, secret ────────────────────────▶ accepts; a thread serves the connection
//!   notify ticket   ────────────────────────▶ whose connection it is
//!   Call TcpKey    ── control connection ──▶  the memory's key
//!   write, read     ────────────────────────▶ checks key and bounds, places bytes
//! ```
//!
//! The initiator moves bytes while its transfers are looked at, so it needs no thread.

mod server;

pub(crate) use server::Serving;

use super::{Attempt, Flight, Pair, Path, PathKind, Started};
use crate::config::TcpReceive;
use crate::control::frame::Service;
use crate::control::link::ended;
use crate::inner::Inner;
use crate::lock;
use crate::peer::{Lease, Peer};
use crate::prepared::Part;
use crate::{AgentError, Op};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use warpverbs_devmem::transport::protocol::{PostError, Refusal};
use warpverbs_devmem::transport::{
    BoundQueues, Config, Connection, Endpoint, Operation, Receive, RemoteMemory, TransportError,
};
use warpverbs_devmem::unpack::UnpackConfig;
use warpverbs_peer::Reason;

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
    secret: [u8; 16],
    /// Says whose connection it is.
    ticket: [u8; 16],
}

/// The connection to a peer, made when it is first needed and again after an error.
#[derive(Default)]
pub(crate) struct Sockets(Mutex<Option<Arc<Connected>>>);

struct Connected {
    connection: Connection,
    /// Keys of the peer's memory, by number.
    keys: Mutex<FxHashMap<u32, RemoteMemory>>,
}

impl Sockets {
    fn get(&self, agent: &Arc<Inner>, peer: &Arc<Peer>) -> Result<Arc<Connected>, AgentError> {
        let mut made = lock(&self.0);
        if let Some(made) = &*made {
            return Ok(made.clone());
        }
        let deadline = agent.config.deadline;
        let refused = |why: String| AgentError::Refused { peer: peer.owner.to_string(), why };
        let link = agent.connect(peer, deadline)?;
        let bytes = link.call(&peer.owner, Service::Tcp, &[], deadline)?;
        let Invitation { port, secret, ticket } =
            postcard::from_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
        let host = link.stream.peer_addr();
        let host = host.map_err(|error| AgentError::system("getpeername", error))?;
        let failed = |error: &TransportError| failed(peer, error);
        let config = Config::default().secret(secret).sockets(agent.config.tcp_sockets);
        let endpoint = Endpoint::receiving(config, receive(agent));
        let endpoint = endpoint.map_err(|error| failed(&error))?;
        let connection = endpoint.connect(SocketAddr::new(host.ip(), port), deadline);
        let connection = connection.map_err(|error| failed(&error))?;
        connection.notify(&ticket).map_err(|error| failed(&error))?;
        let new = Arc::new(Connected { connection, keys: Mutex::default() });
        *made = Some(new.clone());
        Ok(new)
    }

    /// The next transfer makes another connection in the place of this one.
    fn discard(&self, broken: &Arc<Connected>) {
        // Whoever holds the lock may wait for the control thread, which may be this one: it makes a
        // new connection, or finds this one and discards it after another failure.
        if let Ok(mut made) = self.0.try_lock()
            && made.as_ref().is_some_and(|made| Arc::ptr_eq(made, broken))
        {
            *made = None;
        }
    }

    /// The peer is lost: the sockets are closed when no transfer uses them any more.
    pub(crate) fn close(&self) {
        if let Ok(mut made) = self.0.try_lock() {
            *made = None;
        }
    }
}

impl Connected {
    /// The key of a peer's memory: asked for once.
    fn key(
        &self,
        agent: &Arc<Inner>,
        peer: &Arc<Peer>,
        id: u32,
    ) -> Result<RemoteMemory, AgentError> {
        if let Some(key) = lock(&self.keys).get(&id) {
            return Ok(*key);
        }
        let deadline = agent.config.deadline;
        let link = agent.connect(peer, deadline)?;
        let bytes = link.call(&peer.owner, Service::TcpKey, &id.to_le_bytes(), deadline)?;
        let refused = |why: String| AgentError::Refused { peer: peer.owner.to_string(), why };
        let key = RemoteMemory::from_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
        lock(&self.keys).insert(id, key);
        Ok(key)
    }
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
        _: &AtomicBool,
    ) -> Result<Started, AgentError> {
        let agent = self.agent.upgrade().ok_or_else(|| ended(&part.local.extent.owner))?;
        let lease = part.remote.lease(peer)?;
        let made = peer.sockets.get(&agent, peer)?;
        let remote = made.key(&agent, peer, part.remote.extent.id)?;
        let work = Work {
            op,
            peer: peer.clone(),
            part: part.clone(),
            made,
            remote,
            under_way: VecDeque::new(),
            next: 0,
            cancelled: false,
            error: None,
            over: false,
            _lease: lease,
        };
        Started::by(work)
    }
}

/// A transfer under way: one read or write for each piece.
struct Work {
    op: Op,
    peer: Arc<Peer>,
    part: Arc<Part>,
    made: Arc<Connected>,
    remote: RemoteMemory,
    under_way: VecDeque<Operation>,
    /// The first piece that has not been posted.
    next: usize,
    cancelled: bool,
    /// The first that went wrong: nothing more is posted.
    error: Option<AgentError>,
    /// Nothing is under way, or the connection has ended.
    over: bool,
    _lease: Lease,
}

impl Work {
    /// Posts as many pieces as the connection takes.
    fn post(&mut self) -> Result<(), TransportError> {
        let rest = &self.part.pieces[self.next..];
        if rest.is_empty() {
            return Ok(());
        }
        let mut posting = self.made.connection.posting();
        for piece in rest {
            let local = self.part.local.region().slice(piece.local, piece.len as usize)?;
            let remote = self.remote.at(piece.remote);
            let posted = match self.op {
                Op::Read => posting.read(local, remote),
                Op::Write => posting.write(local, remote),
            };
            match posted {
                Ok(operation) => self.under_way.push_back(operation),
                // Other transfers may have taken all.
                Err(TransportError::Post(PostError::TooMany { .. })) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Whether nothing is under way any more and nothing is to be posted.
    fn advance(&mut self) -> Result<bool, TransportError> {
        while let Some(&first) = self.under_way.front() {
            match self.made.connection.test(first) {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) if error.ends_connection() => return Err(error),
                Err(error) => self.fail(&error),
            }
            self.under_way.pop_front();
        }
        if self.cancelled || self.error.is_some() {
            return Ok(self.under_way.is_empty());
        }
        self.post()?;
        Ok(self.under_way.is_empty() && self.next == self.part.pieces.len())
    }

    fn fail(&mut self, error: &TransportError) {
        let error = match error {
            TransportError::Refused(Refusal::UnknownKey) => self.part.remote.extent.deregistered(),
            error => failed(&self.peer, error),
        };
        self.error.get_or_insert(error);
    }
}

impl Flight for Work {
    fn poll(&mut self) -> Result<bool, AgentError> {
        match self.advance() {
            Ok(true) => {
                self.over = true;
                self.error.take().map_or(Ok(true), Err)
            }
            Ok(false) => Ok(false),
            Err(error) => Err(failed(&self.peer, &error)),
        }
    }

    fn cancel(&mut self) {
        self.cancelled = true;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // Ends the connection, and with it the other transfers on it, so that nothing is read from a
        // socket into the local memory any more.
        self.peer.sockets.discard(&self.made);
        self.made.connection.abort();
    }
}

pub(super) fn tcp(pair: &Pair<'_>) -> Attempt {
    let no = |why: AgentError| vec![Reason::new(PathKind::Tcp.to_string(), why)];
    let made = pair.peer.sockets.get(pair.agent, pair.peer).map_err(no)?;
    made.key(pair.agent, pair.peer, pair.remote.extent.id).map_err(no)?;
    Ok((Box::new(Tcp { agent: Arc::downgrade(pair.agent) }), made.connection.explain()))
}
