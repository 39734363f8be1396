//! The connection to a peer, by which transfers write and read its memory.

use crate::config::TcpReceive;
use crate::control::{Asked, Service};
use crate::deadline::Deadline;
use crate::made::Made;
use crate::names::PathKind;
use crate::path::failed;
use crate::path::wired::{ForcedEnd, cause};
use crate::remote::PeerMemory;
use crate::{AgentConfig, AgentError};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use warpverbs_devmem::unpack::UnpackConfig;
use warpverbs_devmem::{BoundQueues, causes};
use warpverbs_gpu::Gpu;
use warpverbs_tcp::protocol::LEAST_WINDOW;
use warpverbs_tcp::{Config, Domain, Link as TcpLink, Receive, RemoteKey, TcpError};

/// How this agent uses TCP, at either end.
pub(crate) struct Tcp {
    sockets: u16,
    /// Where peers connect.
    pub(super) listen: SocketAddr,
    pub(super) allowed: bool,
    receive: TcpReceive,
    gpu: Arc<dyn Gpu>,
    /// Where connections receive, once one was asked for: queues can be bound only once.
    received: OnceLock<Receive>,
    /// A target that does not confirm the end of a connection in this time is lost.
    patience: Duration,
}

impl Tcp {
    pub(crate) fn new(config: &AgentConfig, gpu: &Arc<dyn Gpu>) -> Arc<Self> {
        Arc::new(Self {
            sockets: config.tcp_sockets,
            listen: SocketAddr::new(config.listen.ip(), config.tcp_port),
            allowed: config.allows(PathKind::Tcp),
            receive: config.tcp_receive.clone(),
            gpu: gpu.clone(),
            received: OnceLock::new(),
            patience: config.silence,
        })
    }

    pub(super) fn receive(&self) -> Receive {
        let choose = || match &self.receive {
            TcpReceive::Host => Receive::default(),
            TcpReceive::Device(device) => Receive::Device(device.clone()),
            TcpReceive::Queues(queues) => {
                let unpack = UnpackConfig::default();
                Receive::choose(Some(queues), BoundQueues::BYTES, &self.gpu, unpack)
            }
        };
        self.received.get_or_init(choose).clone()
    }

    /// The settings of both ends: these connections carry no messages.
    pub(super) fn config(&self) -> Config {
        Config::default().sockets(self.sockets).window(LEAST_WINDOW)
    }
}

/// How a peer connects, as it travels by the control connection.
#[derive(Serialize, Deserialize)]
pub(super) struct Invitation {
    pub(super) port: u16,
    /// For one connection.
    pub(super) secret: [u8; 16],
}

/// The connection to a peer, made when it is first needed and again after an error.
pub(crate) struct Sockets {
    tcp: Arc<Tcp>,
    pub(super) made: Made<Arc<Connected>>,
}

pub(super) struct Connected {
    pub(super) connection: TcpLink,
    pub(super) end: ForcedEnd,
}

impl Sockets {
    pub(crate) fn new(tcp: &Arc<Tcp>) -> Arc<Self> {
        Arc::new(Self { tcp: tcp.clone(), made: Made::default() })
    }

    pub(super) fn get(
        &self,
        peer: &Arc<dyn Asked>,
        deadline: &Deadline,
    ) -> Result<Arc<Connected>, AgentError> {
        let make = || {
            let made = Arc::new(self.connect(peer, deadline)?);
            // A peer that was lost meanwhile has closed no connection, since there was none.
            peer.check()?;
            Ok(made)
        };
        self.made.get_or_make(deadline, || late(peer), make)
    }

    fn connect(&self, peer: &Arc<dyn Asked>, deadline: &Deadline) -> Result<Connected, AgentError> {
        let refused = |why: String| AgentError::Refused { peer: peer.owner().to_string(), why };
        let link = peer.clone().link(deadline)?;
        let bytes = link.call(peer.owner(), Service::Tcp, &[], deadline)?;
        let Invitation { port, secret } =
            postcard::from_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
        let host = link.stream.peer_addr();
        let host = host.map_err(|error| AgentError::system("getpeername", error))?;
        let failed = |error: TcpError| failed(PathKind::Tcp, peer.owner(), &causes(&error));
        let domain = Domain::receiving(self.tcp.config().secret(secret), self.tcp.receive());
        let domain = domain.map_err(failed)?;
        let address = SocketAddr::new(host.ip(), port);
        let left = deadline.left(|| late(peer))?;
        let connection = domain.connect(address, left).map_err(|error| {
            cause(failed(error), (&link, &**peer), (Service::Tcp, &secret), deadline)
        })?;
        Ok(Connected { connection, end: ForcedEnd::new(link, self.tcp.patience) })
    }

    /// The peer is lost: the sockets are closed when no transfer uses them any more.
    pub(crate) fn close(&self) {
        self.made.discard(|_| true);
    }
}

fn late(peer: &Arc<dyn Asked>) -> String {
    format!("a TCP connection to {}", peer.owner())
}

/// The key of a peer's memory: asked for once.
pub(super) fn key(
    peer: &Arc<dyn Asked>,
    memory: &PeerMemory,
    deadline: &Deadline,
) -> Result<RemoteKey, AgentError> {
    if let Some(key) = memory.tcp_key.get() {
        return Ok(*key);
    }
    let id = memory.extent.id.to_le_bytes();
    let link = peer.clone().link(deadline)?;
    let bytes = link.call(peer.owner(), Service::TcpKey, &id, deadline)?;
    let refused = |why: String| AgentError::Refused { peer: peer.owner().to_string(), why };
    let key = RemoteKey::from_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
    Ok(*memory.tcp_key.get_or_init(|| key))
}
