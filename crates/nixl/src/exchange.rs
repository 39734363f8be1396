//! Metadata that travel by an address or a store, while the program goes on.
//!
//! One thread of an agent does one request after the other, in the order of the calls. A failure is logged;
//! a program sees by [`Agent::knows`](crate::Agent::knows) what has arrived.

use crate::{Error, Status};
use std::collections::VecDeque;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use warpverbs_agent::{AgentError, Exchange};
use warpverbs_rendezvous::{Client, Limits};

/// How long a request may take, all tries together.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries to reach an agent that does not listen yet.
const PAUSE: Duration = Duration::from_millis(20);
/// Requests that may wait.
const MOST_WAITING: usize = 4096;
/// The label of an agent's whole metadata in a store.
pub const WHOLE: &str = "metadata";
/// The first part of keys in a store, unless another is given.
pub const NAMESPACE: &str = "/nixl/agents";

/// Where metadata go to or come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The agent that listens at this address.
    Agent {
        /// A name or an address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// The store that [`Store`] names, under a label.
    Store {
        /// Empty for [`WHOLE`].
        label: String,
    },
}

/// A store of the job, by which metadata travel.
#[derive(Clone)]
pub enum Store {
    /// PyTorch's TCPStore.
    Tcp {
        /// Where it listens: a name or an address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Any other, such as etcd.
    Other {
        /// The first part of keys, before `/AGENT/LABEL`; that of PyTorch's store is [`NAMESPACE`].
        namespace: String,
        /// Opens it, once for each request.
        open: Arc<dyn Fn() -> Result<Box<dyn Exchange>, String> + Send + Sync>,
    },
}

impl Store {
    /// PyTorch's TCPStore at `HOST:PORT`.
    ///
    /// # Errors
    /// It is no such address.
    pub fn tcp(address: &str) -> Result<Self, Error> {
        let split = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let parsed = split.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = parsed.ok_or_else(|| {
            let why = format!("the address of a store is {address:?}, expected HOST:PORT");
            Error::new(Status::InvalidParam, why)
        })?;
        Ok(Self::Tcp { host: host.trim_matches(['[', ']']).to_owned(), port })
    }

    /// The key of an agent's metadata.
    fn key(&self, agent: &str, label: &str) -> String {
        let namespace = match self {
            Self::Tcp { .. } => NAMESPACE,
            Self::Other { namespace, .. } => namespace.trim_end_matches('/'),
        };
        let label = if label.is_empty() { WHOLE } else { label };
        format!("{namespace}/{agent}/{label}")
    }

    fn open(&self) -> Result<Box<dyn Exchange>, String> {
        match self {
            Self::Other { open, .. } => open(),
            Self::Tcp { host, port } => {
                let client = Client::connect(host, *port, PATIENCE, Limits::default());
                Ok(Box::new(client.map_err(|error| error.to_string())?))
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "Store({host}:{port})"),
            Self::Other { namespace, .. } => write!(f, "Store({namespace})"),
        }
    }
}

/// A task of the thread.
pub(crate) enum Request {
    /// Has the other end load metadata of this agent.
    Send(Vec<u8>),
    /// Loads metadata of this agent.
    Fetch(String),
}

struct Job {
    agent: warpverbs_agent::Agent,
    request: Request,
    place: Place,
    store: Option<Store>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// The thread runs.
    runs: bool,
}

/// Requests in order, and the thread that does them; it ends when there are none.
#[derive(Default)]
pub(crate) struct Exchanger {
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

impl Exchanger {
    /// Has a request done after those before it.
    pub(crate) fn submit(
        &self,
        agent: &warpverbs_agent::Agent,
        request: Request,
        place: Place,
        store: Option<&Store>,
    ) -> Result<(), Error> {
        if let (Place::Store { .. }, None) = (&place, store) {
            let why = "no address is given, and no store is set (NIXL_TCPSTORE_ENDPOINT=HOST:PORT; \
                       in Python also NIXL_ETCD_ENDPOINTS=http://HOST:PORT)";
            return Err(Error::new(Status::InvalidParam, why));
        }
        let job = Job { agent: agent.clone(), request, place, store: store.cloned() };
        let mut queue = crate::lock(&self.shared.0);
        if queue.waiting.len() >= MOST_WAITING {
            let why = format!("{MOST_WAITING} exchanges of metadata wait to be done");
            return Err(Error::new(Status::NotAllowed, why));
        }
        queue.waiting.push_back(job);
        if !queue.runs {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name("wv-metadata".into());
            thread.spawn(move || work(&shared)).map_err(|error| {
                Error::new(Status::Backend, format!("a thread cannot be started: {error}"))
            })?;
            queue.runs = true;
        }
        Ok(())
    }

    /// Waits until all requests are done or have failed; whether they are.
    pub(crate) fn drain(&self, timeout: Duration) -> bool {
        let (queue, done) = &*self.shared;
        let queue = crate::lock(queue);
        let waited = done.wait_timeout_while(queue, timeout, |queue| queue.runs);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for Exchanger {
    /// All that a program has asked for is done: often, to tell peers that it ends.
    fn drop(&mut self) {
        if !self.drain(PATIENCE) {
            crate::lock(&self.shared.0).waiting.clear();
        }
    }
}

fn work(shared: &(Mutex<Queue>, Condvar)) {
    let (queue, done) = shared;
    loop {
        let next = {
            let mut queue = crate::lock(queue);
            let next = queue.waiting.pop_front();
            queue.runs = next.is_some();
            next
        };
        let Some(job) = next else { return done.notify_all() };
        if let Err(why) = job.run() {
            tracing::warn!(agent = job.agent.name(), place = ?job.place, "metadata: {why}");
        }
    }
}

impl Job {
    fn run(&self) -> Result<(), String> {
        let text = |error: AgentError| error.to_string();
        match (&self.place, &self.request) {
            (Place::Agent { host, port }, request) => self.by_address(host, *port, request),
            (Place::Store { label }, Request::Send(bytes)) => {
                let store = self.store()?;
                store.open()?.put(&store.key(self.agent.name(), label), bytes)
            }
            (Place::Store { label }, Request::Fetch(peer)) => {
                let (store, mut opened) = (self.store()?, self.store()?.open()?);
                let key = store.key(peer, label);
                let found = self.agent.retrieve_metadata(&mut *opened, &key, PATIENCE);
                self.found(peer, &found.map_err(text)?)
            }
        }
    }

    fn store(&self) -> Result<&Store, String> {
        Ok(self.store.as_ref().ok_or("no store is set")?)
    }

    /// Tries again as long as nobody listens: two programs that start together need no order.
    fn by_address(&self, host: &str, port: u16, request: &Request) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let address = resolve(host, port)?;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let result = match request {
                Request::Send(bytes) => self.agent.send_metadata(address, bytes, left),
                Request::Fetch(peer) => match self.agent.fetch_metadata(address, left) {
                    Ok(name) => return self.found(peer, &name),
                    Err(error) => Err(error),
                },
            };
            match result {
                Ok(()) => return Ok(()),
                Err(error @ AgentError::PeerLost { .. }) if left > PAUSE => {
                    tracing::debug!("metadata of {address}: {error}; once more");
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The metadata of the agent at the place were loaded, whoever was asked for.
    fn found(&self, wanted: &str, name: &str) -> Result<(), String> {
        match name == wanted {
            true => Ok(()),
            false => Err(format!("asked for {wanted:?}, found the metadata of {name:?}")),
        }
    }
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let mut found = (host, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    found.next().ok_or_else(|| format!("{host}: the name has no address"))
}
