//! The target: accepts the connections of peers, and serves their reads and writes.

use super::sockets::{Invitation, Tcp};
use crate::control::{Link, LinkId};
use crate::metadata::random;
use crate::{AgentError, EXCLUDED, lock};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use warpverbs_mem::{Access, Region};
use warpverbs_tcp::{
    Closer, Domain, Invitations, Link as TcpLink, Listener, RegisteredRegion, TcpError,
};

/// For as long as the other end lives; its loss is seen by the control connection.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// Between two attempts to accept while the process has no descriptors.
const PAUSE: Duration = Duration::from_millis(10);
/// Connections of an agent, each of which has a thread.
const MOST_SERVED: usize = 1024;

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

/// The part that its threads share.
struct Shared {
    domain: Domain,
    invitations: Invitations,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// Invited connections that have not arrived yet.
    invited: Vec<Guest>,
    served: Vec<Served>,
    closed: bool,
}

/// The owner of a connection.
#[derive(Clone)]
struct Guest {
    secret: [u8; 16],
    /// The control connection by which it was asked for, and with which it ends.
    by: LinkId,
    /// The name of the agent that has asked.
    from: Arc<str>,
}

struct Served {
    guest: Guest,
    connection: Arc<TcpLink>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// How a peer connects; listens if this is the first that asks. The connection that it has is
    /// ended before. Where `bytes` are the secret of a connection, that one is ended and there is no
    /// other.
    pub(crate) fn invite(
        &self,
        tcp: &Tcp,
        (link, from): (&Link, &Arc<str>),
        bytes: &[u8],
    ) -> Result<Vec<u8>, String> {
        self.end(|guest| guest.by == link.id && (bytes.is_empty() || guest.secret == bytes));
        if !bytes.is_empty() {
            return Ok(Vec::new());
        }
        if !tcp.allowed {
            return Err(EXCLUDED.to_owned());
        }
        let mut stage = lock(&self.0);
        if matches!(*stage, Stage::NotAsked) {
            *stage = Stage::Open(Server::start(tcp).map_err(|error| error.to_string())?);
        }
        let Stage::Open(server) = &*stage else { return Err("this agent has ended".to_owned()) };
        let secret = random().map_err(|error| error.to_string())?;
        let mut connections = lock(&server.shared.connections);
        if connections.invited.len() + connections.served.len() >= MOST_SERVED {
            return Err(format!("this agent serves {MOST_SERVED} TCP connections already"));
        }
        connections.invited.push(Guest { secret, by: link.id, from: from.clone() });
        server.shared.invitations.add(secret);
        let invitation = Invitation { port: server.port, secret };
        postcard::to_stdvec(&invitation).map_err(|error| error.to_string())
    }

    /// An agent asks on a control connection, so it has given up its earlier ones. Bytes that these
    /// connections have not placed yet, perhaps because this process was stopped, would overwrite the
    /// agent's later writes, so they are ended first.
    pub(crate) fn fence(&self, link: &Link, from: &str) {
        self.end(|guest| guest.by != link.id && *guest.from == *from);
    }

    /// Ends connections. On return none of them accesses memory.
    fn end(&self, which: impl Fn(&Guest) -> bool) {
        let Stage::Open(server) = &*lock(&self.0) else { return };
        let mut connections = lock(&server.shared.connections);
        connections.invited.retain(|guest| {
            let keep = !which(guest);
            if !keep {
                server.shared.invitations.revoke(&guest.secret);
            }
            keep
        });
        let ended: Vec<_> =
            connections.served.iter().filter(|served| which(&served.guest)).collect();
        ended.iter().for_each(|served| served.connection.abort());
    }

    /// Lets peers that were invited reach `region`.
    pub(crate) fn register(&self, region: &Region) -> Result<RegisteredRegion, String> {
        let stage = lock(&self.0);
        let Stage::Open(server) = &*stage else { return Err("no connection was asked for".into()) };
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        server.shared.domain.register(region, access).map_err(|error| error.to_string())
    }

    /// How much memory peers have the keys of.
    #[cfg(test)]
    pub(crate) fn registered(&self) -> usize {
        let Stage::Open(server) = &*lock(&self.0) else { return 0 };
        server.shared.domain.registered()
    }

    /// The control connection has ended.
    pub(crate) fn forget(&self, link: &Link) {
        self.end(|guest| guest.by == link.id);
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
    fn start(tcp: &Tcp) -> Result<Self, AgentError> {
        let failed = |error: TcpError| {
            AgentError::system("TCP listener", std::io::Error::other(error.to_string()))
        };
        // Peers take the smaller number of sockets.
        let domain = Domain::receiving(tcp.config(), tcp.receive()).map_err(failed)?;
        let invitations = Invitations::default();
        let listener = domain.listen_for(&invitations, tcp.listen).map_err(failed)?;
        let (port, closer) = (listener.address().port(), listener.closer().map_err(failed)?);
        let connections = Mutex::default();
        let shared = Arc::new(Shared { domain, invitations, connections });
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
        let mut failing = false;
        loop {
            let accepted = listener.accept(&self.domain, FOREVER);
            if lock(&self.connections).closed {
                return;
            }
            match accepted {
                Ok(connection) => {
                    self.clone().begin(connection);
                    failing = false;
                }
                Err(TcpError::Timeout { .. }) => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Gives the connection a thread, unless its invitation was revoked.
    fn begin(self: Arc<Self>, connection: TcpLink) {
        let connection = Arc::new(connection);
        let (shared, its) = (self.clone(), connection.clone());
        let mut connections = lock(&self.connections);
        let at = connections.invited.iter().position(|guest| guest.secret == *connection.secret());
        let Some(at) = at else { return };
        let guest = connections.invited.swap_remove(at);
        if connections.closed {
            return;
        }
        // It takes itself out of the list at its end, for which it waits for this lock.
        match spawn("wv-agent-tcp", move || shared.serve(&its)) {
            Ok(thread) => {
                let thread = Some(thread);
                connections.served.push(Served { guest, connection, thread });
            }
            Err(error) => tracing::warn!(%error, "a connection cannot be served"),
        }
    }

    fn serve(&self, connection: &Arc<TcpLink>) {
        if let Err(why) = connection.serve(FOREVER, || false) {
            tracing::debug!(%why, "a TCP connection has ended");
        }
        connection.abort();
        lock(&self.connections).served.retain(|other| !Arc::ptr_eq(&other.connection, connection));
    }
}
