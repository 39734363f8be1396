//! Connections over TCP: from a host's name, and from a listening socket.

use crate::connection::PROMPT;
use crate::{Arrival, Connection, Deadline, Door, Guest, MeetError, Message, Role, gives_way};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);
/// Between two looks at a listening socket.
const PAUSE: Duration = Duration::from_millis(1);
/// Connections whose preamble has not arrived, at most.
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

    /// The first client that shows the right preamble within `limit`. Connections that send none in time,
    /// or another one, are closed, and delay no other.
    ///
    /// # Errors
    /// [`MeetError::NoClient`]
    pub fn accept<M: Message>(self, limit: Duration) -> Result<Connection<M>, MeetError> {
        let start = Instant::now();
        let mut pending: Vec<(Connection<M>, SocketAddr)> = Vec::new();
        // None for one that fails already: it has gone.
        let begin = |stream: TcpStream, peer: SocketAddr| {
            crate::prepare(&stream).and_then(|()| stream.set_nonblocking(true)).ok()?;
            let begun = Connection::begin(stream, peer.to_string(), Role::Server, PROMPT);
            Some((begun.ok()?, peer))
        };
        let (mut door, mut turned_away, mut last) = (Door::default(), 0, None);
        loop {
            // No more at once than are kept, so that all else has its turn too.
            let mut most = MOST_PENDING;
            for _ in 0..MOST_PENDING.saturating_sub(pending.len()) {
                match door.accept(&self.socket, || self.socket.accept()) {
                    Arrival::Guest((stream, peer)) => pending.extend(begin(stream, peer)),
                    Arrival::Short => {
                        // One of those that are here has the descriptor.
                        most = 1;
                        break;
                    }
                    Arrival::Nobody | Arrival::Failed(_) => break,
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
            // Each has been read, so no client is closed whose preamble has arrived.
            let guests = pending.iter().enumerate();
            let guests = guests.map(|(at, (_, peer))| Guest::stranger(at, peer.ip()));
            if let Some(at) = gives_way(guests, most) {
                pending.remove(at);
                turned_away += 1;
                continue;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl<M: Message> Connection<M> {
    /// Connects to a server, which may begin to listen within `limit`: everything ends by then, from the
    /// resolver's answer to the server's preamble.
    ///
    /// # Errors
    /// No connection within `limit`, and those of [`Connection::open`].
    pub fn connect(host: &str, port: u16, limit: Duration) -> Result<Self, MeetError> {
        let deadline = Deadline::after(limit);
        let found = crate::resolve(host, port, deadline)?;
        let (stream, addr) = reach(&found, deadline).map_err(|cause| {
            let (host, waited) = (host.to_owned(), deadline.waited());
            MeetError::Unreachable { host, port, waited, cause }
        })?;
        let left = deadline.remaining().unwrap_or_default();
        Self::open(stream, addr.to_string(), Role::Client, left)
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

/// A stream that does not block, to the first of several addresses of a server that is reached.
fn reach(found: &[SocketAddr], deadline: Deadline) -> io::Result<(TcpStream, SocketAddr)> {
    let mut last = ErrorKind::TimedOut.into();
    loop {
        for (at, &addr) in found.iter().enumerate() {
            let Some(left) = deadline.remaining() else { return Err(last) };
            // One that does not answer leaves time for the others.
            let share = left / (found.len() - at) as u32;
            // The system takes 0 for a mistake.
            let connected = crate::connect(addr, share.max(Duration::from_micros(1)))
                .and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
            match connected {
                Ok(stream) => return Ok((stream, addr)),
                Err(error) => last = error,
            }
        }
        match deadline.remaining() {
            Some(left) if left > AGAIN => std::thread::sleep(AGAIN),
            _ => return Err(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    /// Listens, accepts nobody, and has as many callers as the system lets wait: it takes no more. With the
    /// callers.
    fn full() -> (Socket, SocketAddr, Vec<TcpStream>) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let caller = || TcpStream::connect_timeout(&addr, Duration::from_millis(200)).ok();
        let callers = std::iter::from_fn(caller).collect();
        (socket, addr, callers)
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let ((_full, silent, _callers), listener) =
            (full(), crate::listen(([127, 0, 0, 1], 0).into()).unwrap());
        let other = listener.local_addr().unwrap();
        // Half of it is for the first.
        let reached = reach(&[silent, other], Deadline::after(Duration::from_secs(8)));
        assert_eq!(reached.unwrap().1, other);
    }

    #[test]
    fn addresses_that_do_not_answer_cost_no_more_than_the_limit() {
        let (_full, silent, _callers) = full();
        let (deadline, limit) = (Deadline::after, Duration::from_millis(200));
        let start = Instant::now();
        let error = reach(&[silent; 200], deadline(limit)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // With 50 ms for each it would be 10 s.
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let error = reach(&[silent], deadline(Duration::ZERO)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
