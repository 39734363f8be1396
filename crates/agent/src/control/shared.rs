//! The part of a control loop that other threads share with its thread.

use super::handshake::Key;
use super::inbox::{FULL, Inbox, Notification};
use super::link::{Link, Revoked, ended};
use super::remote::Remote;
use crate::lock;
use crate::metadata::{MAX_ADDRESSES, Secret};
use crate::names::Owner;
use crate::tally::{self, Tally};
use crate::{AgentConfig, AgentError};
use rustix::event::{PollFd, PollFlags};
use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use warpverbs_meet::{Frames, Wake, poll};

thread_local! {
    /// Whether this is the control thread of an agent. Wakers run there, and may drop agents.
    pub(super) static IS_CONTROL: Cell<bool> = const { Cell::new(false) };
}

/// A connection that another thread has made.
pub(crate) struct Handed {
    pub(super) link: Arc<Link>,
    pub(super) decoder: Frames,
    pub(super) peer: Arc<dyn Remote>,
}

/// A transfer that the control thread moves on.
pub(crate) trait Watched: Send + Sync {
    /// Looks whether it is over. Never waits.
    fn progress(&self);
    fn is_over(&self) -> bool;
    /// Whether a thread that waits for it moves it on, too.
    fn is_waited_for(&self) -> bool;
    /// Ends it soon, by force, because its agent ends. Never waits, and may be called again.
    fn end(&self, why: AgentError);
    /// Fails it now, unless a thread is in its `post`.
    fn abort(&self, why: AgentError);
    /// Whether it is on the list. Changed under the lock of that.
    fn watched(&self) -> &AtomicBool;
}

/// The settings of the loop.
pub(super) struct Settings {
    pub(super) silence: Duration,
    pub(super) window: u32,
    /// Whether strangers that show the token may ask for metadata and bring theirs.
    pub(super) serves_metadata: bool,
}

/// The agent's identity, and the secrets that the other ends of its connections must prove.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) owner: Owner,
    /// The job's token; empty if there is none.
    pub(crate) token: Vec<u8>,
    pub(crate) secret: Secret,
}

impl Identity {
    /// The key of connections to this agent, by name or by address. By address there is none without a
    /// token.
    pub(super) fn key_of_connection(&self, named: bool) -> Option<Key> {
        match named {
            true => Some(Key::of_agent(&self.token, &self.secret)),
            false => Key::of_job(&self.token),
        }
    }
}

/// The part of a control loop that other threads share with its thread.
pub(crate) struct Control {
    pub(crate) own: Identity,
    pub(super) wake: Arc<Wake>,
    pub(super) listener: Mutex<Option<TcpListener>>,
    address: SocketAddr,
    pub(super) settings: Settings,
    pub(crate) inbox: Inbox,
    pub(crate) tally: Arc<Tally>,
    /// Connections that other threads have made.
    pub(super) handed: Mutex<Vec<Handed>>,
    /// Peers that may touch memory of this agent.
    pub(super) inbound: Mutex<Vec<(Owner, Arc<Link>)>>,
    /// Transfers in progress; `None` once the thread has ended.
    pub(super) active: Mutex<Option<Vec<Arc<dyn Watched>>>>,
    /// The control thread is awake and will look at `active` without a wake-up.
    pub(super) alert: AtomicBool,
    /// Bytes that connections held at the thread's last check.
    pub(super) held: AtomicUsize,
    pub(super) closing: AtomicBool,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Control {
    /// Listens; connections are served once the thread runs.
    pub(crate) fn new(owner: Owner, config: &AgentConfig) -> Result<Self, AgentError> {
        let listener = warpverbs_meet::listen(config.listen);
        let listener = listener.map_err(|error| AgentError::system("bind", error))?;
        let address = listener.local_addr();
        let address = address.map_err(|error| AgentError::system("listen", error))?;
        let wake = Wake::new().map_err(|error| AgentError::system("eventfd", error))?;
        let token = config.token.clone();
        Ok(Self {
            own: Identity { owner, token, secret: Secret::new()? },
            wake: Arc::new(wake),
            listener: Mutex::new(Some(listener)),
            address,
            settings: Settings {
                silence: config.silence,
                window: config.window,
                serves_metadata: config.serves_metadata,
            },
            inbox: Inbox::default(),
            tally: Arc::new(Tally::new()),
            handed: Mutex::default(),
            inbound: Mutex::default(),
            active: Mutex::new(Some(Vec::new())),
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

    /// The addresses in its metadata: of all interfaces if it listens on all.
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

    /// Whether this agent has not ended, and does not end.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        match self.closing.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(ended(&self.own.owner)),
        }
    }

    /// Ends the control thread, which keeps registered memory until no peer touches it any more, and waits
    /// for it. A control thread waits for none: it may be its own, or one for which this one waits.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake.wake();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|_| !IS_CONTROL.get()) {
            let _ = thread.join();
        }
    }

    /// Has the control thread watch a transfer until it is over; false if that thread has ended.
    #[must_use]
    pub(crate) fn watch(&self, transfer: &Arc<impl Watched + 'static>) -> bool {
        let mut list = lock(&self.active);
        let Some(active) = &mut *list else { return false };
        // A transfer that is posted again before the thread has seen its end is still on the list.
        if !transfer.watched().swap(true, Ordering::Relaxed) {
            active.push(transfer.clone());
        }
        drop(list);
        // Sequentially consistent, with the lock between them: either this sees that the thread
        // goes to sleep, or the thread sees the transfer (`Engine::pause`).
        if !self.alert.load(Ordering::SeqCst) {
            self.wake.wake();
        }
        true
    }

    /// As when the thread has ended the last transfer, and goes.
    #[cfg(test)]
    pub(crate) fn watch_no_more(&self) {
        *lock(&self.active) = None;
    }

    /// Whether threads wait for all transfers in progress: these move them on by themselves, and need
    /// the core. `None` if there is no transfer.
    pub(super) fn all_waited_for(&self) -> Option<bool> {
        let active = lock(&self.active);
        let active = active.as_ref().filter(|active| !active.is_empty())?;
        Some(active.iter().all(|transfer| transfer.is_waited_for()))
    }

    /// Revokes deregistered memory at all peers; it is kept until none of them accesses it.
    pub(crate) fn revoke(&self, kept: &Arc<dyn Revoked>) {
        lock(&self.inbound).iter().for_each(|(_, link)| link.revoke(kept));
    }

    /// The peers that have not confirmed yet that they do not touch deregistered memory.
    pub(crate) fn holders(&self, id: u32) -> Vec<String> {
        let inbound = lock(&self.inbound);
        let holds = |(_, link): &&(Owner, Arc<Link>)| lock(&link.revoking).contains_key(&id);
        let mut names: Vec<_> =
            inbound.iter().filter(holds).map(|(peer, _)| peer.to_string()).collect();
        names.dedup();
        names
    }

    /// Puts a notification of this agent to itself into its inbox. It waits for no room.
    pub(crate) fn notify_itself(&self, bytes: Vec<u8>) -> Result<(), AgentError> {
        self.check()?;
        let (len, most) = (bytes.len(), AgentConfig::MAX_NOTIFICATION);
        let no = |why: String| AgentError::Notification { len, why };
        if len > most {
            return Err(no(format!("at most {most} are taken")));
        }
        let from = self.own.owner.clone();
        match self.inbox.push_own(Notification { from, bytes }) {
            true => {
                tally::count(&self.tally.notifications_sent);
                tally::count(&self.tally.notifications_received);
                Ok(())
            }
            false => {
                tally::count(&self.tally.notifications_declined);
                Err(no(FULL.to_owned()))
            }
        }
    }

    /// How many connections of peers there are.
    pub(crate) fn connected(&self) -> u64 {
        lock(&self.inbound).iter().filter(|(_, link)| !link.is_lost()).count() as u64
    }

    /// Whether this start of an agent holds a connection to this one.
    pub(crate) fn is_connected(&self, peer: &Owner) -> bool {
        lock(&self.inbound).iter().any(|(from, link)| from == peer && is_alive(link))
    }
}

/// Whether a connection is not lost, and its other end has not closed it.
pub(crate) fn is_alive(link: &Link) -> bool {
    let mut fds = [PollFd::new(&link.stream, PollFlags::RDHUP)];
    // A failed call says nothing about the peer.
    !link.is_lost()
        && (poll(&mut fds, Some(Duration::ZERO)).is_err() || fds[0].revents().is_empty())
}
