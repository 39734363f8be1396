//! The server's thread: sockets, the store, and the clock.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use warpverbs_meet::{Arrival, Door, Guest, gives_way};

use super::connection::{Connection, Input, turn_away};
use super::stats::{Cause, Shared};
use crate::Limits;
use crate::store::{ClientId, Replies, Store};

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Requests of one connection that are handled before another connection is served, and connections that
/// are accepted before.
const TURN: usize = 64;

pub(super) struct Engine {
    poll: Poll,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<ClientId>,
    /// Connections that may have something to do; readiness is edge-triggered.
    ready: VecDeque<ClientId>,
    door: Door,
    /// Whether a connection may be waiting; there is no new event for one that does.
    accepts: bool,
    store: Store,
    limits: Limits,
    /// Bytes in the buffers of all connections.
    held: usize,
    shared: Arc<Shared>,
}

impl Engine {
    pub(super) fn new(
        listener: std::net::TcpListener,
        limits: Limits,
        shared: Arc<Shared>,
    ) -> io::Result<Engine> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Engine {
            poll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            door: Door::default(),
            accepts: false,
            store: Store::new(limits.clone()),
            limits,
            held: 0,
            shared,
        })
    }

    pub(super) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKER)
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut next_check = Instant::now();
        while !self.shared.stopped() {
            match self.poll.poll(&mut events, self.patience()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "store stops: its sockets cannot be polled");
                    return;
                }
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accepts = true,
                    WAKER => {}
                    Token(client) => self.ready.push_back(client),
                }
            }
            if self.accepts {
                self.accept();
            }
            for _ in 0..self.ready.len() {
                if let Some(client) = self.ready.pop_front() {
                    self.serve(client);
                }
            }
            if Instant::now() >= next_check {
                self.check_times();
                next_check = Instant::now() + self.tick();
            }
        }
    }

    /// How long to wait for events.
    fn patience(&self) -> Option<Duration> {
        let closed = self.door.closed_until();
        if !self.ready.is_empty() || (self.accepts && closed.is_none()) {
            return Some(Duration::ZERO);
        }
        let pause = closed.map(|until| until.saturating_duration_since(Instant::now()));
        let tick = (self.free.len() < self.connections.len()).then(|| self.tick());
        pause.into_iter().chain(tick).min()
    }

    /// How often deadlines are checked.
    fn tick(&self) -> Duration {
        (self.limits.message_time / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    fn accept(&mut self) {
        for _ in 0..TURN {
            // Asked first: no event comes for a connection that waited until a pause was over.
            let paused = self.door.closed_until().is_some();
            match self.door.accept(&self.listener, || self.listener.accept()) {
                Arrival::Guest((stream, peer)) => self.admit(stream, peer),
                Arrival::Short if self.evict(&Cause::NoDescriptors) => {}
                Arrival::Short => {
                    let shared = &self.shared;
                    let tell = |(mut stream, peer)| {
                        turn_away(&mut stream, &Cause::NoDescriptors);
                        shared.fault(peer, Cause::NoDescriptors);
                    };
                    if !self.door.turn_away(|| self.listener.accept(), tell) {
                        return self.accepts = self.door.closed_until().is_some();
                    }
                }
                Arrival::Nobody => return self.accepts = paused,
                // A pause begins.
                Arrival::Failed(_) => return,
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream, peer: SocketAddr) {
        let limit = self.limits.connections;
        let cause = Cause::TooManyConnections { limit };
        if self.connections.len() - self.free.len() >= limit && !self.evict(&cause) {
            turn_away(&mut stream, &cause);
            return self.shared.fault(peer, cause);
        }
        let client = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let prepared = warpverbs_meet::prepare(&stream)
            .and_then(|()| self.poll.registry().register(&mut stream, Token(client), interest));
        if let Err(error) = prepared {
            self.free.push(client);
            return self.shared.fault(peer, Cause::Io(error.kind()));
        }
        self.connections[client] = Some(Connection::new(stream, peer, &self.limits));
        self.shared.count(|stats| {
            stats.accepted += 1;
            stats.connections += 1;
        });
    }

    /// Closes the connection that gives way to a new one, of those that have not validated themselves.
    /// Whether there was any.
    fn evict(&mut self, cause: &Cause) -> bool {
        let since = |one: &Option<Connection>| one.as_ref().and_then(Connection::stranger_since);
        let all = self.connections.iter().enumerate();
        let mut strangers: Vec<_> =
            all.filter_map(|(client, one)| Some((since(one)?, client))).collect();
        // By age, as they give way.
        strangers.sort_unstable();
        loop {
            let guests = strangers.iter().enumerate().filter_map(|(at, &(_, client))| {
                let connection = self.connections[client].as_ref()?;
                Some(Guest::stranger(at, connection.peer.ip()))
            });
            let Some(at) = gives_way(guests, 1) else { return false };
            let (began, client) = strangers.remove(at);
            // Its validation may have come.
            self.serve(client);
            if since(&self.connections[client]) == Some(began) {
                self.close(client, Some(cause.clone()));
            }
            if self.connections[client].is_none() {
                return true;
            }
        }
    }

    /// Gives `client` its turn.
    fn serve(&mut self, client: ClientId) {
        for _ in 0..TURN {
            let Some(Some(connection)) = self.connections.get_mut(client) else { return };
            let before = connection.held();
            let input = connection.flush().and_then(|()| connection.next());
            let memory = self.account(client, before);
            let done = match input {
                Ok(Input::Nothing) => memory.map(|()| true),
                Ok(Input::Request(request)) => {
                    let mut replies = Vec::new();
                    let handled = self.store.handle(client, request, &mut replies);
                    self.deliver(replies);
                    self.shared.count(|stats| stats.requests += 1);
                    handled.map(|()| false).map_err(Cause::from)
                }
                Ok(Input::Closed) => return self.close(client, None),
                Err(cause) => Err(cause),
            };
            match done {
                Ok(true) => return,
                Ok(false) => {}
                Err(cause) => return self.close(client, Some(cause)),
            }
        }
        self.ready.push_back(client);
    }

    /// Keeps `held` right after a change to the buffers of `client`, and says whether that is too
    /// much.
    fn account(&mut self, client: ClientId, before: usize) -> Result<(), Cause> {
        let Some(Some(connection)) = self.connections.get(client) else { return Ok(()) };
        self.held = self.held + connection.held() - before;
        let (size, limit) = (self.held + self.store.bytes(), self.limits.memory);
        let more = connection.held() > before;
        if more && size > limit { Err(Cause::Memory { size, limit }) } else { Ok(()) }
    }

    fn deliver(&mut self, replies: Replies) {
        for (client, reply) in replies {
            let Some(Some(connection)) = self.connections.get_mut(client) else { continue };
            let before = connection.held();
            connection.reply(&reply);
            if let Err(cause) = self.account(client, before) {
                self.close(client, Some(cause));
            } else if self.ready.back() != Some(&client) {
                self.ready.push_back(client);
            }
        }
    }

    fn close(&mut self, client: ClientId, cause: Option<Cause>) {
        let Some(mut connection) = self.connections.get_mut(client).and_then(Option::take) else {
            return;
        };
        self.free.push(client);
        self.held -= connection.held();
        if let Some(cause) = &cause {
            connection.explain(cause);
        }
        // A socket that cannot be deregistered is closed all the same, which has the same effect.
        let _ = self.poll.registry().deregister(&mut connection.stream);
        match cause {
            Some(cause) => self.shared.fault(connection.peer, cause),
            None => tracing::debug!(peer = %connection.peer, "connection ended"),
        }
        self.shared.count(|stats| stats.connections -= 1);
        let mut replies = Vec::new();
        self.store.remove(client, &mut replies);
        self.deliver(replies);
    }

    fn check_times(&mut self) {
        let now = Instant::now();
        for client in 0..self.connections.len() {
            let Some(connection) = &self.connections[client] else { continue };
            if let Err(cause) = connection.check_time(now, &self.limits) {
                self.close(client, Some(cause));
            }
        }
    }
}
