//! The control thread of an agent.

use super::connect::SHORT;
use super::frame::Frame;
use super::link::{Link, Revoked, ended};
use super::services::Services;
use super::session::{Role, Session};
use super::shared::{Control, IS_CONTROL};
use crate::AgentError;
use crate::lock;
use crate::panics::guarded;
use rustix::event::{PollFd, PollFlags};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use warpverbs_meet::{Arrival, Door, dismiss, gives_way, poll, prepare};

/// Connections of an agent. More are not accepted.
const MOST_SESSIONS: usize = 4096;
/// Connections that have not authenticated themselves.
const MOST_STRANGERS: usize = 64;
/// Connections accepted in a turn.
const MOST_ACCEPTS: usize = 16;
/// Memory for bytes of all connections that have arrived or wait to be sent. Beyond it the connection
/// that holds most is lost.
const MOST_HELD: usize = 1 << 30;
/// Between two polls of transfers in progress: mostly network transfers, which need no system call.
const PAUSE: Duration = Duration::from_micros(20);
/// The same while every transfer has a waiting thread, which polls it as well.
const LONG_PAUSE: Duration = Duration::from_micros(200);
/// How long it keeps polling after the last transfer ended, so that the next one starts without a system
/// call.
const LINGER: Duration = Duration::from_millis(1);
/// Between two checks of copies that must end before a connection is closed.
const SETTLE: Duration = Duration::from_millis(1);
/// How long an agent that shuts down waits for its peers to confirm the ends of its transfers, and then
/// again for their last copies.
const FAREWELL: Duration = Duration::from_secs(5);

/// Starts the control thread.
pub(crate) fn start(services: Arc<dyn Services>) -> Result<(), AgentError> {
    let Some(listener) = lock(&services.control().listener).take() else { return Ok(()) };
    let engine = Engine::new(services.clone(), listener);
    let name = "wv-agent".to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || engine.run());
    let thread = thread.map_err(|error| AgentError::system("clone", error))?;
    *lock(&services.control().thread) = Some(thread);
    Ok(())
}

/// Refuses a connection for which there is no file descriptor, with the reason.
fn turn_away((mut stream, _): (TcpStream, SocketAddr)) {
    if stream.set_nonblocking(true).is_ok() {
        dismiss(&mut stream, &Frame::Refused { why: SHORT.into() }.encode());
    }
}

struct Engine {
    services: Arc<dyn Services>,
    listener: TcpListener,
    sessions: Vec<Session>,
    /// When there was a transfer in progress.
    busy: Option<Instant>,
    door: Door,
}

impl Engine {
    fn new(services: Arc<dyn Services>, listener: TcpListener) -> Self {
        Self { services, listener, sessions: Vec::new(), busy: None, door: Door::default() }
    }

    /// Code of the program runs here where memory is given up: a panic of it ends the agent as its drop
    /// does. Wakers are guarded by themselves.
    fn run(mut self) {
        IS_CONTROL.set(true);
        let services = self.services.clone();
        let control = services.control();
        if !guarded("the control thread", || self.serve(control)) {
            tracing::error!(agent = %control.own.owner, "this agent ends");
            control.closing.store(true, Ordering::Release);
        }
        guarded("the control thread", || self.close(control));
        self.leave();
    }

    fn serve(&mut self, control: &Control) {
        while control.check().is_ok() {
            self.adopt();
            let pause = self.pause();
            let ready = self.wait(pause);
            self.turn(&ready);
        }
    }

    fn adopt(&mut self) {
        let handed = std::mem::take(&mut *lock(&self.services.control().handed));
        self.sessions.extend(handed.into_iter().map(Session::made));
    }

    /// How long the thread may sleep unless something arrives.
    fn pause(&mut self) -> Option<Duration> {
        let control = self.services.control();
        if self.sessions.iter().any(Session::is_pending) {
            return Some(Duration::ZERO);
        }
        if let Some(waited) = control.all_waited_for() {
            control.alert.store(true, Ordering::SeqCst);
            self.busy = Some(Instant::now());
            return Some(if waited { LONG_PAUSE } else { PAUSE });
        }
        match self.busy {
            Some(busy) if busy.elapsed() < LINGER => return Some(PAUSE),
            Some(_) => {
                self.busy = None;
                // Sequentially consistent, pairs with `Control::watch`.
                control.alert.store(false, Ordering::SeqCst);
                if control.all_waited_for().is_some() {
                    return Some(Duration::ZERO);
                }
            }
            None => {}
        }
        let settling = self.sessions.iter().any(|session| match &session.role {
            Role::Outbound { busy, .. } => !busy.is_empty() || session.link.is_lost(),
            _ => false,
        });
        if settling {
            return Some(SETTLE);
        }
        let silence = control.settings.silence;
        let looks = self.sessions.iter().filter_map(|session| session.look_at(silence));
        let first = looks.chain(self.door.closed_until()).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    /// Whether new connections are accepted.
    fn accepts(&self) -> bool {
        self.sessions.len() < MOST_SESSIONS && self.door.closed_until().is_none()
    }

    /// Waits for news; which of the sessions have some.
    fn wait(&self, pause: Option<Duration>) -> Vec<bool> {
        let control = self.services.control();
        let mut fds = vec![PollFd::new(&*control.wake, PollFlags::IN)];
        fds.extend(self.sessions.iter().map(|session| {
            let more = if session.link.unsent() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            let read = if session.reads() { PollFlags::IN } else { PollFlags::empty() };
            PollFd::new(&session.link.stream, read | more)
        }));
        if self.accepts() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        if poll(&mut fds, pause).is_err() {
            // Out of memory for a moment.
            return vec![true; self.sessions.len()];
        }
        if !fds[0].revents().is_empty() {
            control.wake.clear();
        }
        let ready = |(fd, session): (&PollFd<'_>, &Session)| {
            !fd.revents().is_empty() || session.is_pending()
        };
        fds[1..].iter().zip(&self.sessions).map(ready).collect()
    }

    fn turn(&mut self, ready: &[bool]) {
        let services = &*self.services;
        for (session, ready) in self.sessions.iter_mut().zip(ready) {
            if *ready {
                session.serve(services);
            }
            session.settle(services);
        }
        self.bound();
        self.progress();
        let services = &*self.services;
        let control = services.control();
        self.sessions.retain(|session| {
            let keep = !session.is_closed();
            if !keep {
                lock(&control.inbound).retain(|(_, link)| !Arc::ptr_eq(link, &session.link));
                services.closed(&session.link);
            }
            keep
        });
        self.accept();
    }

    /// Bounds the memory of all connections.
    fn bound(&mut self) {
        let mut held: usize = self.sessions.iter().map(Session::held).sum();
        self.services.control().held.store(held, Ordering::Relaxed);
        while held > MOST_HELD {
            let all = self.sessions.iter_mut().filter(|session| !session.link.is_lost());
            let Some(most) = all.max_by_key(|session| session.held()) else { return };
            let why = format!("all connections hold {held} bytes, and this one holds the most");
            held = held.saturating_sub(most.held());
            most.lose(&*self.services, &why);
        }
    }

    /// Moves transfers in progress on; whether there are any.
    fn progress(&self) -> bool {
        let control = self.services.control();
        let active = lock(&control.active).clone().unwrap_or_default();
        if active.is_empty() {
            return false;
        }
        active.iter().for_each(|transfer| transfer.progress());
        // Under the lock, as `Control::watch` is: one that is posted again just now stays, or is put
        // there anew.
        let mut active = lock(&control.active);
        active.iter_mut().for_each(|active| {
            active.retain(|transfer| {
                let keep = !transfer.is_over();
                transfer.watched().store(keep, Ordering::Relaxed);
                keep
            });
        });
        active.as_ref().is_some_and(|active| !active.is_empty())
    }

    fn accept(&mut self) {
        for _ in 0..MOST_ACCEPTS {
            if self.sessions.len() >= MOST_SESSIONS {
                return;
            }
            match self.door.accept(&self.listener, || self.listener.accept()) {
                Arrival::Guest((stream, from)) => self.begin(stream, from.ip()),
                // An unauthenticated connection is closed for its descriptor, or the new one is refused.
                Arrival::Short if self.evict(1) => {}
                Arrival::Short => {
                    if !self.door.turn_away(|| self.listener.accept(), turn_away) {
                        return;
                    }
                }
                Arrival::Nobody | Arrival::Failed(_) => return,
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, from: std::net::IpAddr) {
        // One that fails already has gone.
        if stream.set_nonblocking(true).and_then(|()| prepare(&stream)).is_err() {
            return;
        }
        self.evict(MOST_STRANGERS);
        let link = Arc::new(Link::new(stream, self.services.control().wake.clone(), None));
        let mut session = Session::accepted(link, from);
        // Its first message has usually arrived already.
        session.serve(&*self.services);
        self.sessions.push(session);
    }

    /// Closes one unauthenticated connection if there are `most`; whether it did.
    fn evict(&mut self, most: usize) -> bool {
        let guests = self.sessions.iter().enumerate().filter_map(|(at, session)| session.guest(at));
        let Some(at) = gives_way(guests, most) else { return false };
        let session = self.sessions.remove(at);
        session.link.close();
        self.services.closed(&session.link);
        true
    }

    /// Ends transfers and connections: a transfer when the peer has confirmed its end, a connection when
    /// nothing is copied by its means any more.
    fn close(&mut self, control: &Control) {
        let services = self.services.clone();
        let ended = || ended(&control.own.owner);
        self.adopt();
        let memories = services.take_memories();
        for session in &mut self.sessions {
            match &session.role {
                Role::Outbound { .. } => continue,
                Role::Inbound { .. } => {
                    let mut kept = lock(&session.link.revoking);
                    kept.extend(memories.iter().map(|memory| (memory.id(), memory.clone())));
                    drop(kept);
                    // Before the peer sees the connection end and takes its transfers for ended.
                    services.lost(&session.link);
                }
                _ => session.ended = true,
            }
            session.link.lose(ended());
        }
        drop(memories);
        self.serve_while(|engine| {
            let active = lock(&control.active).clone().unwrap_or_default();
            active.iter().for_each(|transfer| transfer.end(ended()));
            engine.progress()
        });
        // Wakers run without the lock.
        let active = lock(&control.active).take().unwrap_or_default();
        active.iter().for_each(|transfer| transfer.abort(ended()));
        let peers = services.end_peers(&ended());
        self.adopt();
        for session in &self.sessions {
            if let Role::Outbound { peer, .. } = &session.role {
                peer.lose(ended());
                session.link.lose(ended());
            }
        }
        self.serve_while(|engine| {
            !engine.sessions.is_empty() || !peers.iter().all(|peer| peer.is_idle())
        });
    }

    /// Memory that a peer may still write to is never given up.
    fn leave(self) {
        for session in &self.sessions {
            let kept = std::mem::take(&mut *lock(&session.link.revoking));
            for (_, memory) in kept {
                let label = Revoked::label(&*memory);
                tracing::warn!(%label, "a peer may still use this memory");
                std::mem::forget(memory);
            }
        }
    }

    /// Serves connections while the agent ends and there is something to wait for, for a bounded time.
    fn serve_while(&mut self, wanted: impl Fn(&Self) -> bool) {
        let until = Instant::now() + FAREWELL;
        loop {
            for session in &mut self.sessions {
                session.serve(&*self.services);
                session.settle(&*self.services);
            }
            self.sessions.retain(|session| !session.is_closed());
            if !wanted(self) || Instant::now() >= until {
                return;
            }
            self.door.close();
            self.wait(Some(SETTLE));
        }
    }
}
