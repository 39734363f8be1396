//! The end that is asked: accepts the connections of peers, and serves their reads and writes.

use super::{Invitation, receive};
use crate::control::link::{Link, LinkId};
use crate::inner::Inner;
use crate::lock;
use crate::metadata::random;
use crate::{AgentError, PathKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use warpverbs_devmem::transport::{
    Closer, Config, Connection, Endpoint, Listener, Registration, TransportError,
};
use warpverbs_mem::{Access, Region};

/// A connection has so long to say whose it is.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For as long as the other end lives; its loss is seen by the control connection.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// Between two attempts to accept while the process has no descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// The sockets of this agent, once a peer has asked for them.
#[derive(Default)]
pub(crate) struct Serving(Mutex<Stage>);

#[derive(Default)]
enum Stage {
    #[default]
    NotAsked,
    Open(Server),
    Closed,
}

struct Server {
    shared: Arc<Shared>,
    port: u16,
    closer: Closer,
    thread: JoinHandle<()>,
}

/// What the threads share.
struct Shared {
    endpoint: Endpoint,
    secret: [u8; 16],
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// What connections say first, and the control connections by which they were asked for.
    tickets: Vec<([u8; 16], LinkId)>,
    served: Vec<Served>,
    closed: bool,
}

struct Served {
    /// The control connection with which it ends, unless it has not said so yet.
    by: Option<LinkId>,
    connection: Arc<Connection>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// How a peer connects; listens if this is the first that asks.
    pub(crate) fn invite(&self, agent: &Inner, link: &Link) -> Result<Vec<u8>, String> {
        if !agent.config.allows(PathKind::Tcp) {
            return Err(super::super::EXCLUDED.to_owned());
        }
        let mut stage = lock(&self.0);
        if matches!(*stage, Stage::NotAsked) {
            *stage = Stage::Open(Server::start(agent).map_err(|error| error.to_string())?);
        }
        let Stage::Open(server) = &*stage else { return Err("this agent has ended".to_owned()) };
        let ticket = random().map_err(|error| error.to_string())?;
        let mut connections = lock(&server.shared.connections);
        connections.tickets.retain(|(_, by)| *by != link.id);
        connections.tickets.push((ticket, link.id));
        let invitation = Invitation { port: server.port, secret: server.shared.secret, ticket };
        postcard::to_stdvec(&invitation).map_err(|error| error.to_string())
    }

    /// Lets peers that were invited reach `region`.
    pub(crate) fn register(&self, region: &Region) -> Result<Registration, String> {
        let stage = lock(&self.0);
        let Stage::Open(server) = &*stage else { return Err("no connection was asked for".into()) };
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        server.shared.endpoint.register(region, access).map_err(|error| error.to_string())
    }

    /// The control connection has ended.
    pub(crate) fn forget(&self, link: &Link) {
        if let Stage::Open(server) = &*lock(&self.0) {
            let mut connections = lock(&server.shared.connections);
            connections.tickets.retain(|(_, by)| *by != link.id);
            let its = |served: &&Served| served.by == Some(link.id);
            connections.served.iter().filter(its).for_each(|served| served.connection.abort());
        }
    }

    /// Ends all connections, and waits for their threads.
    pub(crate) fn close(&self) {
        let stage = std::mem::replace(&mut *lock(&self.0), Stage::Closed);
        let Stage::Open(server) = stage else { return };
        let mut connections = lock(&server.shared.connections);
        connections.closed = true;
        let served = std::mem::take(&mut connections.served);
        drop(connections);
        server.closer.close();
        served.iter().for_each(|served| served.connection.abort());
        let threads = served.into_iter().filter_map(|served| served.thread);
        for thread in threads.chain([server.thread]) {
            let _ = thread.join();
        }
    }
}

impl Server {
    fn start(agent: &Inner) -> Result<Self, AgentError> {
        let config = &agent.config;
        let secret = random()?;
        let failed = |error: TransportError| {
            AgentError::system("TCP listener", std::io::Error::other(error.to_string()))
        };
        // Peers take the smaller number of sockets.
        let of_sockets = Config::default().secret(secret).sockets(config.tcp_sockets);
        let endpoint = Endpoint::receiving(of_sockets, receive(agent)).map_err(failed)?;
        let address = SocketAddr::new(config.listen.ip(), config.tcp_port);
        let listener = endpoint.listen(address).map_err(failed)?;
        let (port, closer) = (listener.address().port(), listener.closer().map_err(failed)?);
        let shared = Arc::new(Shared { endpoint, secret, connections: Mutex::default() });
        let accepting = shared.clone();
        let thread = spawn("wv-agent-accept", move || accepting.accept(listener))?;
        Ok(Self { shared, port, closer, thread })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AgentError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| AgentError::system("clone", error))
}

impl Shared {
    fn accept(self: Arc<Self>, mut listener: Listener) {
        loop {
            let accepted = listener.accept(&self.endpoint, FOREVER);
            if lock(&self.connections).closed {
                return;
            }
            match accepted {
                Ok(connection) => self.clone().begin(connection),
                Err(TransportError::Timeout { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Gives the connection a thread.
    fn begin(self: Arc<Self>, connection: Connection) {
        let connection = Arc::new(connection);
        let (shared, its) = (self.clone(), connection.clone());
        let mut connections = lock(&self.connections);
        if connections.closed {
            return;
        }
        // It looks for itself among the connections, so it waits for this lock.
        match spawn("wv-agent-tcp", move || shared.serve(&its)) {
            Ok(thread) => {
                let thread = Some(thread);
                connections.served.push(Served { by: None, connection, thread });
            }
            Err(error) => tracing::warn!(%error, "a connection cannot be served"),
        }
    }

    fn serve(&self, connection: &Arc<Connection>) {
        let served = self
            .admit(connection)
            .and_then(|()| connection.serve(FOREVER, || false).map_err(|error| error.to_string()));
        if let Err(why) = served {
            tracing::debug!(%why, "a TCP connection has ended");
        }
        connection.abort();
        lock(&self.connections).served.retain(|other| !Arc::ptr_eq(&other.connection, connection));
    }

    /// Learns whose it is.
    fn admit(&self, connection: &Arc<Connection>) -> Result<(), String> {
        let ticket = connection.wait_notification(HANDSHAKE).map_err(|error| error.to_string())?;
        let mut connections = lock(&self.connections);
        let at = connections.tickets.iter().position(|(known, _)| *known == ticket[..]);
        let (_, by) = connections.tickets.swap_remove(at.ok_or("an unknown ticket")?);
        let same = |served: &&mut Served| Arc::ptr_eq(&served.connection, connection);
        if let Some(served) = connections.served.iter_mut().find(same) {
            served.by = Some(by);
        }
        Ok(())
    }
}
