//! The control thread of an agent.

use super::alive::{Alive, Due};
use super::answer::answer;
use super::frame::{Decoder, Frame, MAGIC, VERSION, proof};
use super::inbox::Notification;
use super::link::{Link, ended, lost};
use crate::inner::Inner;
use crate::list::Owner;
use crate::lock;
use crate::memory::Kept;
use crate::metadata::random;
use crate::peer::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Connections of an agent. More are not accepted.
const MOST_SESSIONS: usize = 4096;
/// A stranger that has not shown the token by then is cut off.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Between two looks at transfers in progress: the network's, mostly, which need no system call.
const PAUSE: Duration = Duration::from_micros(20);
/// The same while threads wait for all of them.
const LONG_PAUSE: Duration = Duration::from_micros(200);
/// How long it goes on looking after the last one was over: the next is then taken up without a
/// system call.
const LINGER: Duration = Duration::from_millis(1);
/// Between two looks at copies that must end before a connection is closed.
const SETTLE: Duration = Duration::from_millis(1);
/// How long an agent that ends waits for its peers' last copies.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection that another thread has made.
pub(super) struct Handed {
    pub(super) link: Arc<Link>,
    pub(super) decoder: Decoder,
    pub(super) peer: Arc<Peer>,
}

enum Role {
    /// Has not said who it is.
    Stranger,
    /// Has, and has yet to show the token.
    Greeted { from: Owner, expected: [u8; 32] },
    /// A peer that may touch memory of this agent.
    Inbound { from: Owner },
    /// A peer whose memory this agent may touch. The numbers are of memory that it has deregistered
    /// and that is being copied here.
    Outbound { peer: Arc<Peer>, busy: Vec<u32> },
}

struct Session {
    link: Arc<Link>,
    decoder: Decoder,
    role: Role,
    /// By when the handshake must be over.
    until: Option<Instant>,
    /// The other end has closed.
    ended: bool,
    alive: Alive,
}

pub(super) struct Engine {
    inner: Arc<Inner>,
    listener: TcpListener,
    sessions: Vec<Session>,
    /// When there was a transfer in progress.
    busy: Option<Instant>,
}

impl Engine {
    pub(super) fn new(inner: Arc<Inner>, listener: TcpListener) -> Self {
        Self { inner, listener, sessions: Vec::new(), busy: None }
    }

    pub(super) fn run(mut self) {
        while !self.inner.control.closing.load(Ordering::Acquire) {
            self.adopt();
            let pause = self.pause();
            let ready = self.wait(pause);
            self.turn(&ready);
        }
        self.close();
    }

    fn adopt(&mut self) {
        let handed = std::mem::take(&mut *lock(&self.inner.control.handed));
        self.sessions.extend(handed.into_iter().map(|Handed { link, decoder, peer }| Session {
            link,
            decoder,
            role: Role::Outbound { peer, busy: Vec::new() },
            until: None,
            ended: false,
            alive: Alive::new(Instant::now()),
        }));
    }

    /// How long nothing needs to be looked at, unless something arrives.
    fn pause(&mut self) -> Option<Duration> {
        let control = &self.inner.control;
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
                if !lock(&control.active).is_empty() {
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
        let silence = self.inner.config.silence;
        let first = self.sessions.iter().filter_map(|session| session.look_at(silence)).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    /// Waits for news; which of the sessions have some.
    fn wait(&self, pause: Option<Duration>) -> Vec<bool> {
        let control = &self.inner.control;
        let mut fds = vec![
            PollFd::new(control.wake.fd(), PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        fds.extend(self.sessions.iter().map(|session| {
            let more = if session.link.has_more() { PollFlags::OUT } else { PollFlags::empty() };
            let read = if session.ended { PollFlags::empty() } else { PollFlags::IN };
            PollFd::new(&session.link.stream, read | more)
        }));
        let limit = pause.map(|pause| Timespec {
            tv_sec: pause.as_secs().min(3600) as i64,
            tv_nsec: pause.subsec_nanos().into(),
        });
        if poll(&mut fds, limit.as_ref()).is_err() {
            // Interrupted, or out of memory for a moment.
            return vec![true; self.sessions.len()];
        }
        if !fds[0].revents().is_empty() {
            control.wake.clear();
        }
        fds[2..].iter().map(|fd| !fd.revents().is_empty()).collect()
    }

    fn turn(&mut self, ready: &[bool]) {
        for (session, ready) in self.sessions.iter_mut().zip(ready) {
            if *ready {
                session.serve(&self.inner);
            }
            session.settle(&self.inner);
        }
        self.progress();
        let control = &self.inner.control;
        self.sessions.retain(|session| {
            let keep = !session.is_closed();
            if !keep {
                lock(&control.inbound).retain(|link| !Arc::ptr_eq(link, &session.link));
                if let Role::Inbound { from } = &session.role {
                    self.inner.answering.forget(from);
                }
            }
            keep
        });
        self.accept();
    }

    /// Looks after transfers in progress.
    fn progress(&self) {
        let active = lock(&self.inner.control.active).clone();
        if active.is_empty() {
            return;
        }
        active.iter().for_each(|transfer| transfer.progress());
        // Under the lock, as `Control::watch` is: one that is posted again just now stays, or is put
        // there anew.
        lock(&self.inner.control.active).retain(|transfer| {
            let keep = !transfer.is_over();
            transfer.watched.store(keep, Ordering::Relaxed);
            keep
        });
    }

    fn accept(&mut self) {
        while self.sessions.len() < MOST_SESSIONS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    return std::thread::sleep(SETTLE);
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let _ = stream.set_nodelay(true);
            let link = Arc::new(Link::new(stream, self.inner.control.wake.clone(), None));
            self.sessions.push(Session {
                link,
                decoder: Decoder::default(),
                role: Role::Stranger,
                until: Some(Instant::now() + HANDSHAKE),
                ended: false,
                alive: Alive::new(Instant::now()),
            });
        }
    }

    /// Ends all connections, each when nothing is copied by its means any more.
    fn close(mut self) {
        let owner = self.inner.owner.clone();
        let ended = || ended(&owner);
        for transfer in std::mem::take(&mut *lock(&self.inner.control.active)) {
            transfer.abort(ended());
        }
        self.adopt();
        let memories: Vec<_> = self.inner.take_memories().iter().map(Kept::new).collect();
        for session in &mut self.sessions {
            match &session.role {
                Role::Outbound { peer, .. } => peer.lose(ended()),
                Role::Inbound { .. } => {
                    let mut kept = lock(&session.link.revoking);
                    kept.extend(memories.iter().map(|memory| (memory.id(), memory.clone())));
                }
                _ => session.ended = true,
            }
            session.link.lose(ended());
        }
        drop(memories);
        let until = Instant::now() + FAREWELL;
        while !self.sessions.is_empty() && Instant::now() < until {
            for session in &mut self.sessions {
                session.serve(&self.inner);
            }
            self.sessions.retain(|session| !session.is_closed());
            if !self.sessions.is_empty() {
                self.wait(Some(SETTLE));
            }
        }
        for session in &self.sessions {
            // The peer may still write there: this memory is never given up.
            let kept = std::mem::take(&mut *lock(&session.link.revoking));
            for (_, memory) in kept {
                tracing::warn!(label = %memory.label(), "a peer may still use this memory");
                std::mem::forget(memory);
            }
        }
    }
}

impl Session {
    /// By when to look at it though nothing arrives.
    fn look_at(&self, silence: Duration) -> Option<Instant> {
        self.until.or_else(|| (!self.link.is_lost()).then(|| self.alive.until(silence)))
    }

    /// Closes it if it is over: one made here when it is lost and nothing is copied by its means any
    /// more, another when the other end has closed.
    fn is_closed(&self) -> bool {
        let over = match &self.role {
            Role::Outbound { peer, .. } => self.link.is_lost() && peer.is_idle(),
            _ => self.ended,
        };
        if over {
            self.link.close();
        }
        over
    }

    /// Sends and receives what can be.
    fn serve(&mut self, inner: &Arc<Inner>) {
        if let Err(why) = self.link.flush() {
            self.lose(inner, &why);
        }
        let mut bytes = [0; 16 << 10];
        while !self.ended {
            match (&self.link.stream).read(&mut bytes) {
                Ok(0) => self.end(inner, "its connection ended"),
                Ok(_) if self.link.is_lost() => {}
                Ok(count) => {
                    self.alive.heard(Instant::now());
                    self.decoder.feed(&bytes[..count]);
                    self.receive(inner);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.end(inner, &format!("its connection broke: {error}")),
            }
        }
    }

    fn receive(&mut self, inner: &Arc<Inner>) {
        while !self.link.is_lost() {
            let handled = match self.decoder.next() {
                Ok(Some(frame)) => self.handle(inner, frame),
                Ok(None) => return,
                Err(why) => Err(why),
            };
            if let Err(why) = handled {
                tracing::warn!(peer = %self.name(), %why, "a connection is refused");
                self.link.send(&Frame::Refused { why: why.as_str().into() });
                self.lose(inner, &why);
            }
        }
    }

    fn name(&self) -> String {
        match &self.role {
            Role::Stranger => "stranger".to_owned(),
            Role::Greeted { from, .. } | Role::Inbound { from } => from.to_string(),
            Role::Outbound { peer, .. } => peer.owner.to_string(),
        }
    }

    /// It is of no use any more; it stays until the other end has closed.
    fn lose(&mut self, inner: &Inner, why: &str) {
        let error = match &self.role {
            Role::Outbound { peer, .. } => {
                let error = lost(&peer.owner, why);
                peer.lose(error.clone());
                error
            }
            Role::Inbound { from } => {
                if !self.link.is_lost() {
                    inner.serving.forget(from);
                }
                lost(from, why)
            }
            Role::Greeted { from, .. } => lost(from, why),
            Role::Stranger => lost(&inner.owner, why),
        };
        if matches!(self.role, Role::Stranger | Role::Greeted { .. }) {
            // It touches no memory, so nobody waits for it.
            self.ended = true;
        }
        self.link.lose(error);
    }

    fn end(&mut self, inner: &Inner, why: &str) {
        self.lose(inner, why);
        self.ended = true;
    }

    /// What needs no news: times that have run out, copies that have ended.
    fn settle(&mut self, inner: &Arc<Inner>) {
        // Of a connection that another thread has made, the first frames may be here already.
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.end(inner, "it has not shown the token in time");
        }
        let silence = inner.config.silence;
        if matches!(self.role, Role::Inbound { .. } | Role::Outbound { .. }) && !self.link.is_lost()
        {
            match self.alive.look(Instant::now(), silence) {
                Due::Nothing => {}
                Due::Ask => self.link.send(&Frame::Ping),
                Due::Lost => self.silent(inner, silence),
            }
        }
        let link = &self.link;
        if let Role::Outbound { peer, busy } = &mut self.role {
            busy.retain(|&id| {
                let idle = peer.is_idle_at(id);
                if idle {
                    link.send(&Frame::Revoked { id });
                }
                !idle
            });
        }
    }

    /// The peer has not answered. What arrived since the last look counts.
    fn silent(&mut self, inner: &Arc<Inner>, silence: Duration) {
        self.serve(inner);
        if self.alive.look(Instant::now(), silence) == Due::Lost {
            self.lose(inner, &format!("it has given no sign of life for {silence:?}"));
        }
    }

    fn handle(&mut self, inner: &Arc<Inner>, frame: Frame<'_>) -> Result<(), String> {
        match (&mut self.role, frame) {
            (Role::Stranger, Frame::Hello { magic, version, from, to, nonce }) => {
                if magic != MAGIC || version != VERSION {
                    return Err(format!("version {version}, this agent speaks {VERSION}"));
                }
                self.greet(inner, from, to, nonce)
            }
            (Role::Greeted { from, expected }, Frame::Auth { proof }) => {
                if proof != *expected {
                    return Err("it has another token".to_owned());
                }
                let from = from.clone();
                self.welcome(inner, from);
                Ok(())
            }
            (Role::Inbound { from }, Frame::Notify { number, bytes }) => {
                let (from, bytes) = (from.clone(), bytes.into_owned());
                if bytes.len() > crate::AgentConfig::MAX_NOTIFICATION {
                    return Err(format!("a notification of {} bytes", bytes.len()));
                }
                let window = inner.config.window;
                if !inner.control.inbox.push(Notification { from, bytes }, window) {
                    return Err("a notification for which there is no room".to_owned());
                }
                self.link.send(&Frame::Accepted { number });
                Ok(())
            }
            (Role::Inbound { .. }, Frame::Revoked { id }) => {
                self.link.revoked(id);
                Ok(())
            }
            (Role::Inbound { from }, Frame::Call { number, service, bytes }) => {
                let answer = answer(inner, &self.link, from, service, &bytes);
                let answer = answer.map(Into::into).map_err(Into::into);
                self.link.send(&Frame::Reply { number, answer });
                Ok(())
            }
            (Role::Outbound { .. }, Frame::Accepted { number }) => self.link.accepted(number),
            (Role::Outbound { .. }, Frame::Credit { count }) => {
                self.link.credit(count);
                Ok(())
            }
            (Role::Outbound { peer, busy }, Frame::Revoke { id }) => {
                peer.revoke(id);
                busy.push(id);
                Ok(())
            }
            (Role::Outbound { .. }, Frame::Reply { number, answer }) => {
                let owned = answer.map(|bytes| bytes.into_owned());
                self.link.answer(number, owned.map_err(|why| why.into_owned()));
                Ok(())
            }
            (Role::Inbound { .. } | Role::Outbound { .. }, Frame::Ping) => {
                self.link.send(&Frame::Pong);
                Ok(())
            }
            // What arrives, whatever it is, is a sign of life.
            (Role::Inbound { .. } | Role::Outbound { .. }, Frame::Pong) => Ok(()),
            (Role::Inbound { .. } | Role::Outbound { .. }, Frame::Stream { id, event }) => {
                self.link.streams.event(id, event)
            }
            (Role::Outbound { .. }, Frame::Refused { why }) => Err(format!("it refuses: {why}")),
            (_, frame) => Err(format!("an unexpected message, {frame:.60?}")),
        }
    }

    fn greet(
        &mut self,
        inner: &Inner,
        from: Owner,
        to: Option<Owner>,
        nonce: [u8; 16],
    ) -> Result<(), String> {
        crate::metadata::check_name("name", &from.name)?;
        if from.name == inner.owner.name {
            return Err(format!("this agent has the name {} too", from.name));
        }
        if let Some(to) = to.filter(|to| *to != inner.owner) {
            return Err(format!("this is {}, not {to}", inner.owner));
        }
        let own = random().map_err(|error| error.to_string())?;
        let (token, owner) = (&inner.config.token, inner.owner.clone());
        let expected = proof(token, b"client", [&nonce, &own], &from);
        let shown = proof(token, b"server", [&nonce, &own], &owner);
        self.link.send(&Frame::Welcome { owner, nonce: own, proof: shown });
        self.role = Role::Greeted { from, expected };
        Ok(())
    }

    /// The other end has the token: from now on it may touch registered memory.
    fn welcome(&mut self, inner: &Inner, from: Owner) {
        let control = &inner.control;
        let credits = control.inbox.connected(&from, &self.link, inner.config.window);
        // Under this lock, so that no memory is deregistered after it is told and before its
        // revocation can be.
        let mut inbound = lock(&control.inbound);
        inbound.push(self.link.clone());
        self.link.send(&Frame::Ready { live: inner.live(), credits });
        drop(inbound);
        self.decoder.trusted = true;
        self.until = None;
        self.role = Role::Inbound { from };
    }
}
