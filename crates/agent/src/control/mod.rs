//! How agents speak with each other: one TCP connection from each agent to each peer whose memory it
//! uses, and one thread for each agent, which serves them all.
//!
//! ```text
//! A, whose transfers touch memory of B          B
//!   Hello, Auth                 ──────▶
//!                               ◀──────   Welcome, Ready: what is registered, room for notifications
//!   Notify                      ──────▶   into the inbox
//!                               ◀──────   Accepted; Credit when one was taken
//!                               ◀──────   Revoke: memory was deregistered
//!   Revoked, once A copies nothing there ─▶   the memory is given up
//! ```
//! Both ask a silent other end for a sign of life (Ping, Pong). The end of a connection says that the
//! peer, or its agent, has ended. A connection is closed only after the last copy by which its maker
//! touches the other's memory.

mod alive;
mod answer;
mod connect;
mod engine;
pub(crate) mod frame;
mod inbox;
pub(crate) mod link;
mod session;
mod wake;

pub(crate) use connect::{fetch, load};
pub use inbox::Notification;

use crate::inner::Inner;
use crate::lock;
use crate::memory::{Kept, LocalMemory};
use crate::peer::Peer;
use crate::transfer::Shared;
use crate::{AgentConfig, AgentError};
use engine::Engine;
use frame::Decoder;
use inbox::Inbox;
use link::Link;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wake::Wake;

/// A connection that another thread has made.
struct Handed {
    link: Arc<Link>,
    decoder: Decoder,
    peer: Arc<Peer>,
}

/// What other threads share with the control thread.
pub(crate) struct Control {
    wake: Arc<Wake>,
    listener: Mutex<Option<TcpListener>>,
    address: SocketAddr,
    pub(crate) inbox: Inbox,
    /// Connections that other threads have made.
    handed: Mutex<Vec<Handed>>,
    /// Peers that may touch memory of this agent.
    inbound: Mutex<Vec<Arc<Link>>>,
    /// Transfers in progress.
    active: Mutex<Vec<Arc<Shared>>>,
    /// The control thread looks at `active` soon by itself.
    alert: AtomicBool,
    closing: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Control {
    /// Listens; serves nobody yet.
    pub(crate) fn new(config: &AgentConfig) -> Result<Self, AgentError> {
        let listener = TcpListener::bind(config.listen);
        let listener = listener.map_err(|error| AgentError::system("bind", error))?;
        let ready = listener.set_nonblocking(true).and_then(|()| listener.local_addr());
        let address = ready.map_err(|error| AgentError::system("listen", error))?;
        Ok(Self {
            wake: Arc::new(Wake::new()?),
            listener: Mutex::new(Some(listener)),
            address,
            inbox: Inbox::default(),
            handed: Mutex::default(),
            inbound: Mutex::default(),
            active: Mutex::default(),
            alert: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            thread: Mutex::default(),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The addresses that peers are told: of all interfaces if it listens on all.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let ip = self.address.ip();
        if !ip.is_unspecified() {
            return vec![self.address];
        }
        let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
        let addresses = interfaces.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), 0)));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::from((v6.ip(), 0))))
        });
        let mut found: Vec<_> = addresses
            .filter(|found| found.is_ipv4() || ip.is_ipv6())
            // An address of the link alone needs a scope, which differs from host to host.
            .filter(|found| !matches!(found, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local()))
            .map(|found| SocketAddr::new(found.ip(), self.address.port()))
            .collect();
        // Loopback last: at another host it is another machine.
        found.sort_by_key(|address| address.ip().is_loopback());
        found
    }

    /// Starts the control thread.
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<(), AgentError> {
        let Some(listener) = lock(&inner.control.listener).take() else { return Ok(()) };
        let engine = Engine::new(inner.clone(), listener);
        let name = "wv-agent".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || engine.run());
        let thread = thread.map_err(|error| AgentError::system("clone", error))?;
        *lock(&inner.control.thread) = Some(thread);
        Ok(())
    }

    /// Ends the control thread, and waits for it.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake.wake();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }

    /// Has the control thread look after a transfer until it is over.
    pub(crate) fn watch(&self, transfer: &Arc<Shared>) {
        let mut active = lock(&self.active);
        // One that was posted again before the thread has seen its end is there already.
        if !transfer.watched.swap(true, Ordering::Relaxed) {
            active.push(transfer.clone());
        }
        drop(active);
        // Sequentially consistent, with the lock between them: either this sees that the thread
        // goes to sleep, or the thread sees the transfer (`Engine::pause`).
        if !self.alert.load(Ordering::SeqCst) {
            self.wake.wake();
        }
    }

    /// Whether threads wait for all transfers in progress: these move them on by themselves, and need
    /// the core. `None` if there is no transfer.
    fn all_waited_for(&self) -> Option<bool> {
        let active = lock(&self.active);
        (!active.is_empty()).then(|| active.iter().all(|transfer| transfer.is_waited_for()))
    }

    /// Memory is no longer registered: it is kept until no peer touches it any more.
    pub(crate) fn revoke(&self, memory: &Arc<LocalMemory>) {
        let kept = Kept::new(memory);
        lock(&self.inbound).iter().for_each(|link| link.revoke(&kept));
    }
}

impl Inner {
    /// The connection to a peer, which is made if there is none.
    pub(crate) fn connect(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        timeout: Duration,
    ) -> Result<Arc<Link>, AgentError> {
        peer.check()?;
        let mut link = lock(&peer.link);
        if let Some(link) = &*link {
            return if link.is_lost() { Err(link.why()) } else { Ok(link.clone()) };
        }
        let handed = connect::connect(self, peer, timeout)?;
        let made = handed.link.clone();
        *link = Some(made.clone());
        lock(&self.control.handed).push(handed);
        self.control.wake.wake();
        // Whoever ends its use meanwhile has not found the connection.
        peer.check().inspect_err(|why| made.lose(why.clone()))?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::frame::Service;
    use super::*;
    use crate::{Agent, Op, PathKind, PostOptions, State};
    use warpverbs_transport::Context;

    const SOON: Duration = Duration::from_secs(30);

    /// Over TCP, or through queue pairs between two NICs in loopback: of which there is one.
    fn agents(path: PathKind) -> (Agent, Agent) {
        let nic = Context::new().unwrap().open("soft").unwrap();
        let config = || AgentConfig::default().nic(&nic).require(path);
        (Agent::new("a", config()).unwrap(), Agent::new("b", config()).unwrap())
    }

    /// A peer that was lost and is used again has a new connection, perhaps before its agent has seen
    /// the end of the one before.
    #[test]
    fn what_was_asked_for_by_a_connection_outlives_others_of_the_same_peer() {
        for path in [PathKind::Network, PathKind::Tcp] {
            let (a, b) = agents(path);
            let (ours, theirs) =
                (a.register(vec![7; 8], "m").unwrap(), b.register(vec![0; 8], "m").unwrap());
            a.load_metadata(&b.metadata().unwrap()).unwrap();
            let lists = (ours.blocks(0, 8, 1).unwrap(), theirs.blocks(0, 8, 1).unwrap());
            let write = a.initialize(Op::Write, &lists.0, &lists.1).unwrap();
            let peer = a.inner().peer("b").unwrap();
            for _ in 0..10 {
                write.post(PostOptions::new()).unwrap();
                assert_eq!(write.wait(SOON).unwrap(), State::Done);
                drop(connect::connect(a.inner(), &peer, SOON).unwrap());
                a.notify("b", b"", SOON).unwrap();
                assert!(b.wait_notification(SOON).is_ok());
            }
        }
    }

    #[test]
    fn a_connection_to_whoever_is_there_is_for_metadata_alone() {
        let (a, b) = agents(PathKind::Network);
        let ask = |service| connect::ask(a.inner(), b.address(), SOON, service, &[]);
        assert!(ask(Service::Fetch).is_ok());
        for service in [Service::Pairs, Service::Tcp, Service::TcpKey, Service::Stream] {
            let refused = ask(service).unwrap_err().to_string();
            assert!(refused.contains("by name"), "{refused}");
        }
    }
}
