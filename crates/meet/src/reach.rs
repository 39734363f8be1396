//! Connections over TCP: from a host's name, and from a listening socket.

use crate::{
    Arrival, Connection, Deadline, Door, Guest, MeetError, Message, RESOLVING, Role, gives_way,
};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);
/// Between two looks at a listening socket.
const PAUSE: Duration = Duration::from_millis(1);
/// Connections that may owe their preamble at a time.
const MOST_PENDING: usize = 64;

/// Listens for one client.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    addr: SocketAddr,
}

impl Listener {
    /// Listens at `addr`; port 0 is any.
    ///
    /// # Errors
    /// [`MeetError::Bind`]
    pub fn bind(addr: SocketAddr) -> Result<Self, MeetError> {
        let bound =
            crate::listen(addr).and_then(|socket| Ok(Self { addr: socket.local_addr()?, socket }));
        bound.map_err(|cause| MeetError::Bind { addr, cause })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The first client that shows the right preamble within `limit`. Connections that show none in
    /// time, or another, are closed; they keep nobody waiting.
    ///
    /// # Errors
    /// [`MeetError::NoClient`]
    pub fn accept<M: Message>(self, limit: Duration) -> Result<Connection<M>, MeetError> {
        let start = Instant::now();
        let mut pending: Vec<(Connection<M>, SocketAddr)> = Vec::new();
        let (mut door, mut turned_away, mut last) = (Door::default(), 0, None);
        loop {
            while pending.len() < MOST_PENDING
                && let Arrival::Guest((stream, peer)) =
                    door.accept(&self.socket, || self.socket.accept())
            {
                // One that fails already has gone.
                if crate::prepare(&stream).and_then(|()| stream.set_nonblocking(true)).is_ok() {
                    let begun = Connection::begin(stream, peer.to_string(), Role::Server);
                    pending.extend(begun.map(|connection| (connection, peer)));
                }
            }
            let mut at = 0;
            while let Some((connection, _)) = pending.get_mut(at) {
                match connection.greeted() {
                    Ok(true) => return Ok(pending.swap_remove(at).0),
                    Ok(false) => at += 1,
                    Err(error) => {
                        tracing::warn!(%error, "a connection is turned away");
                        (turned_away, last) = (turned_away + 1, Some(Box::new(error)));
                        pending.remove(at);
                    }
                }
            }
            if start.elapsed() >= limit {
                let (addr, waited) = (self.addr, limit);
                return Err(MeetError::NoClient { addr, waited, turned_away, last });
            }
            // Each has been looked at: no client goes whose preamble has come.
            let guests = pending.iter().enumerate();
            let guests = guests.map(|(at, (_, peer))| Guest::stranger(at, peer.ip()));
            if let Some(at) = gives_way(guests, MOST_PENDING) {
                pending.remove(at);
                turned_away += 1;
                continue;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl<M: Message> Connection<M> {
    /// Connects to a server, which may begin to listen within `limit`.
    ///
    /// # Errors
    /// No connection within `limit`, and those of [`Connection::open`].
    pub fn connect(host: &str, port: u16, limit: Duration) -> Result<Self, MeetError> {
        let deadline = Deadline::after(limit);
        let found = crate::resolve(host, port, Deadline::after(limit.max(RESOLVING)))?;
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        loop {
            for &addr in &found {
                let left = deadline.remaining().unwrap_or_default().max(AGAIN);
                let connected = crate::connect(addr, left)
                    .and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
                match connected {
                    Ok(stream) => return Self::open(stream, addr.to_string(), Role::Client),
                    Err(error) => last = error,
                }
            }
            if deadline.remaining().is_none_or(|left| left <= AGAIN) {
                let (host, waited) = (host.to_owned(), deadline.waited());
                return Err(MeetError::Unreachable { host, port, waited, cause: last });
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Address of the interface that the connection uses.
    ///
    /// # Errors
    /// As the operating system has them.
    pub fn local_ip(&self) -> io::Result<IpAddr> {
        Ok(self.stream.local_addr()?.ip().to_canonical())
    }

    /// Address of the other end, for people.
    pub fn peer(&self) -> String {
        self.stream.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default()
    }
}
