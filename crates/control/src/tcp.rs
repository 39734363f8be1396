//! Control connections over TCP: from a host's name, and from a listening socket.

use crate::{Connection, ControlError, Message, Role};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);
/// Between two looks at a listening socket.
const PAUSE: Duration = Duration::from_millis(1);
/// Connections that may owe their preamble at a time; then the oldest of the host that has the most ends.
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
    /// [`ControlError::Bind`]
    pub fn bind(addr: SocketAddr) -> Result<Self, ControlError> {
        let bound = TcpListener::bind(addr).and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(Self { addr: socket.local_addr()?, socket })
        });
        bound.map_err(|cause| ControlError::Bind { addr, cause })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The first client that shows the right preamble within `limit`. Connections that show none in
    /// time, or another, are closed; they keep nobody waiting.
    ///
    /// # Errors
    /// [`ControlError::NoClient`]
    pub fn accept<M: Message>(self, limit: Duration) -> Result<Connection<M>, ControlError> {
        let start = Instant::now();
        let mut pending: Vec<(IpAddr, Connection<M>)> = Vec::new();
        let (mut turned_away, mut last) = (0, None);
        loop {
            while pending.len() < MOST_PENDING
                && let Ok((stream, peer)) = self.socket.accept()
            {
                // One that fails already has gone.
                if prepare(&stream, Role::Client, peer).is_ok() {
                    let begun = Connection::begin(stream, peer.to_string(), Role::Server);
                    pending.extend(begun.map(|connection| (peer.ip(), connection)));
                }
            }
            let mut at = 0;
            while let Some((_, connection)) = pending.get_mut(at) {
                match connection.greeted() {
                    Ok(true) => return Ok(pending.swap_remove(at).1),
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
                return Err(ControlError::NoClient { addr, waited, turned_away, last });
            }
            // Each has been looked at: no client goes whose preamble has come.
            if pending.len() == MOST_PENDING {
                let hosts: Vec<_> = pending.iter().map(|(host, _)| *host).collect();
                pending.remove(oldest_of_most(&hosts));
                turned_away += 1;
                continue;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Which of connections from these hosts, the oldest first, makes room for another one.
fn oldest_of_most(hosts: &[IpAddr]) -> usize {
    let count = |host| hosts.iter().filter(|other| *other == host).count();
    let most = hosts.iter().map(count).max().unwrap_or(0);
    hosts.iter().position(|host| count(host) == most).unwrap_or(0)
}

fn prepare(stream: &TcpStream, who: Role, peer: SocketAddr) -> Result<(), ControlError> {
    let prepared = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
    prepared.map_err(|cause| ControlError::Io { who, peer: peer.to_string(), cause })
}

impl<M: Message> Connection<M> {
    /// Connects to a server, which may begin to listen within `limit`.
    ///
    /// # Errors
    /// No connection within `limit`, and those of [`Connection::open`].
    pub fn connect(host: &str, port: u16, limit: Duration) -> Result<Self, ControlError> {
        let start = Instant::now();
        let unknown = |cause| ControlError::Unknown { host: host.into(), cause };
        let found: Vec<_> = (host, port).to_socket_addrs().map_err(unknown)?.collect();
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        loop {
            for &addr in &found {
                let left = limit.saturating_sub(start.elapsed()).max(AGAIN);
                match TcpStream::connect_timeout(&addr, left) {
                    // A socket may connect to itself if no process listens on an ephemeral port.
                    Ok(stream) if stream.local_addr().is_ok_and(|own| own == addr) => {
                        last = ErrorKind::ConnectionRefused.into();
                    }
                    Ok(stream) => {
                        prepare(&stream, Role::Server, addr)?;
                        return Self::open(stream, addr.to_string(), Role::Client);
                    }
                    Err(error) => last = error,
                }
            }
            if start.elapsed() + AGAIN >= limit {
                let (host, waited) = (host.to_owned(), start.elapsed());
                return Err(ControlError::Unreachable { host, port, waited, cause: last });
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// The own address on the way to the peer.
    ///
    /// # Errors
    /// As the operating system has them.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The other end's address.
    ///
    /// # Errors
    /// As the operating system has them.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_many_connections_loses_its_own() {
        let hosts = |last: &[u8]| -> Vec<IpAddr> {
            last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
        };
        assert_eq!(oldest_of_most(&hosts(&[1, 2, 3, 2])), 1);
        assert_eq!(oldest_of_most(&hosts(&[1, 2, 3])), 0);
        assert_eq!(oldest_of_most(&hosts(&[1, 1, 2, 2, 2])), 2);
    }
}
