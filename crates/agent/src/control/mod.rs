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
//!
//! The loop knows connections and frames. What it needs of the agent is [`services::Services`].
//!
//! # Who locks what, in which order
//!
//! A lock may be taken while those above it are held, and no other:
//!
//! 1. `Control::active`, `Control::handed`: each alone, for a copy or a change of the list.
//! 2. the state of a transfer; the streams that are offered, then the state of one (above this module)
//! 3. the table of peers; the metadata that is kept (above this module)
//! 4. `Control::inbound`: while a peer is admitted and while memory is revoked
//! 5. the table of registered memory (above this module); `Inbox::state`
//! 6. `Link::revoking`; `Link::notices`; `Link::calls`; `Streams::ends`: one of them
//! 7. `Link::out`
//!
//! `Slot::stage` is held for a look or a change alone, never while a thread connects or waits for the
//! peer. No lock is held while a peer is waited for, and none while code of the program runs: wakers are
//! called, and registered memory is given up, when all are released.

mod alive;
pub(crate) mod connect;
mod engine;
pub(crate) mod frame;
pub(crate) mod handshake;
mod inbox;
pub(crate) mod limit;
pub(crate) mod link;
pub(crate) mod services;
mod session;
pub(crate) mod slot;
mod strangers;
pub(crate) mod streams;
mod wake;

pub(crate) use connect::{connect, fetch, load};
pub use inbox::Notification;

use crate::list::Owner;
use crate::lock;
use crate::metadata::{MAX_ADDRESSES, Secret};
use crate::{AgentConfig, AgentError};
use engine::Engine;
use frame::Decoder;
use handshake::Key;
use inbox::Inbox;
use link::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use services::{Remote, Revoked, Services, Watched};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wake::Wake;

/// A connection that another thread has made.
pub(crate) struct Handed {
    link: Arc<Link>,
    decoder: Decoder,
    peer: Arc<dyn Remote>,
}

/// What the loop needs of the configuration.
struct Settings {
    silence: Duration,
    window: u32,
}

/// What ends of connections must have.
struct Keys {
    token: Vec<u8>,
    secret: Secret,
}

impl Keys {
    /// The job's token; empty if there is none.
    fn token(&self) -> &[u8] {
        &self.token
    }

    /// The key of connections to this agent, by name or by address. By address there is none without a
    /// token.
    fn of_connection(&self, named: bool) -> Option<Key> {
        match named {
            true => Some(Key::of_agent(&self.token, &self.secret)),
            false => Key::of_job(&self.token),
        }
    }
}

/// What other threads share with the control thread.
pub(crate) struct Control {
    wake: Arc<Wake>,
    listener: Mutex<Option<TcpListener>>,
    address: SocketAddr,
    settings: Settings,
    keys: Keys,
    pub(crate) inbox: Inbox,
    /// Connections that other threads have made.
    handed: Mutex<Vec<Handed>>,
    /// Peers that may touch memory of this agent.
    inbound: Mutex<Vec<(Owner, Arc<Link>)>>,
    /// Transfers in progress.
    active: Mutex<Vec<Arc<dyn Watched>>>,
    /// The control thread looks at `active` soon by itself.
    alert: AtomicBool,
    /// Bytes that connections held when the thread looked last.
    held: AtomicUsize,
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
            settings: Settings { silence: config.silence, window: config.window },
            keys: Keys { token: config.token.clone(), secret: Secret::new()? },
            inbox: Inbox::default(),
            handed: Mutex::default(),
            inbound: Mutex::default(),
            active: Mutex::default(),
            alert: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            thread: Mutex::default(),
        })
    }

    /// Memory for bytes of all connections that have arrived or wait to be sent.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a connection to this agent must show, for its metadata.
    pub(crate) fn secret(&self) -> &Secret {
        &self.keys.secret
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
        found.truncate(MAX_ADDRESSES);
        found
    }

    /// Starts the control thread.
    pub(crate) fn start<S: Services + 'static>(services: &Arc<S>) -> Result<(), AgentError> {
        let Some(listener) = lock(&services.control().listener).take() else { return Ok(()) };
        let engine = Engine::new(services.clone(), listener);
        let name = "wv-agent".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || engine.run());
        let thread = thread.map_err(|error| AgentError::system("clone", error))?;
        *lock(&services.control().thread) = Some(thread);
        Ok(())
    }

    /// Ends the control thread, and waits for it.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake.wake();
        let thread = lock(&self.thread).take();
        // A waker may end the agent: it runs in that thread, which ends when it has returned.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }

    /// Has the control thread look after a transfer until it is over.
    pub(crate) fn watch(&self, transfer: &Arc<impl Watched + 'static>) {
        let mut active = lock(&self.active);
        // One that was posted again before the thread has seen its end is there already.
        if !transfer.watched().swap(true, Ordering::Relaxed) {
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
    pub(crate) fn revoke(&self, kept: &Arc<dyn Revoked>) {
        lock(&self.inbound).iter().for_each(|(_, link)| link.revoke(kept));
    }

    /// Whether this start of an agent holds a connection to this one.
    pub(crate) fn is_connected(&self, peer: &Owner) -> bool {
        lock(&self.inbound).iter().any(|(from, link)| from == peer && is_alive(link))
    }
}

/// Whether a connection is not lost, and its other end has not closed it.
pub(crate) fn is_alive(link: &Link) -> bool {
    let mut fds = [PollFd::new(&link.stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A failed call says nothing about the peer.
    !link.is_lost() && (poll(&mut fds, Some(&now)).is_err() || fds[0].revents().is_empty())
}
