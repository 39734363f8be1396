//! The control thread of an agent.

use super::link::{Link, ended};
use super::session::{Role, Session};
use crate::inner::Inner;
use crate::lock;
use crate::memory::Kept;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Connections of an agent. More are not accepted.
const MOST_SESSIONS: usize = 4096;
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
        self.sessions.extend(handed.into_iter().map(Session::made));
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
                self.inner.answering.forget(&session.link);
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
            self.sessions.push(Session::accepted(link));
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
