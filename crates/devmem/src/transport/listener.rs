//! Accepting connections: many sockets in the middle of their handshake, none of which can hold up
//! the others.

use super::connection::Connection;
use super::endpoint::Endpoint;
use super::error::TransportError;
use super::protocol::{HELLO, HandshakeError, Meeting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Sockets in the middle of their handshake message; more push out the oldest.
const MOST_GUESTS: usize = 256;
/// A socket has so long to say its handshake, and a connection to bring its sockets.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket whose handshake message is not complete.
struct Guest {
    stream: TcpStream,
    bytes: [u8; HELLO],
    have: usize,
    since: Instant,
}

/// Takes connections at an address.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    meeting: Meeting<TcpStream>,
    guests: VecDeque<Guest>,
    began: Instant,
    last_refused: Option<HandshakeError>,
}

impl Listener {
    pub(super) fn bind(endpoint: &Endpoint, address: SocketAddr) -> Result<Self, TransportError> {
        let fail = TransportError::socket("listening");
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind().map_err(fail)?;
        Ok(Self {
            listener,
            address,
            meeting: Meeting::new(endpoint.config.offer, endpoint.config.secret),
            guests: VecDeque::new(),
            began: Instant::now(),
            last_refused: None,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends [`Listener::accept`] from another thread.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn closer(&self) -> Result<Closer, TransportError> {
        let listener = self.listener.try_clone();
        listener.map(Closer).map_err(TransportError::socket("duplicating a listener"))
    }

    /// Why a socket was refused most recently. Refused sockets do not end [`Listener::accept`].
    pub fn last_refused(&self) -> Option<HandshakeError> {
        self.last_refused
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// None was complete within `timeout`; the system's.
    pub fn accept(
        &mut self,
        endpoint: &Endpoint,
        timeout: Duration,
    ) -> Result<Connection, TransportError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.welcome(endpoint)?;
            let mut at = 0;
            while at < self.guests.len() {
                let before = self.guests.len();
                if let Some(met) = self.hear(at)? {
                    return endpoint.begin(met);
                }
                at += usize::from(self.guests.len() == before);
            }
            let now = Instant::now();
            self.guests.retain(|guest| now - guest.since < PATIENCE);
            let old = (now - self.began).saturating_sub(PATIENCE);
            self.meeting.expire(old.as_millis() as u64);
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                let what = "a connection";
                return Err(TransportError::Timeout { what, waited: timeout });
            }
            self.sleep(left.min(PATIENCE))?;
        }
    }

    /// Takes the sockets that wait at the listener.
    fn welcome(&mut self, endpoint: &Endpoint) -> Result<(), TransportError> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    // The peer was quicker.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                    _ => return Err(TransportError::socket("accepting")(error)),
                },
            };
            let ready = stream.set_nonblocking(true).is_ok() && endpoint.prepare(&stream).is_ok();
            if ready {
                let (bytes, since) = ([0; HELLO], Instant::now());
                self.guests.push_back(Guest { stream, bytes, have: 0, since });
            }
            if self.guests.len() > MOST_GUESTS {
                self.guests.pop_front();
            }
        }
    }

    /// Reads what a socket has said so far; its connection, if this was the last socket.
    fn hear(
        &mut self,
        at: usize,
    ) -> Result<Option<super::protocol::Met<TcpStream>>, TransportError> {
        let guest = &mut self.guests[at];
        while guest.have < HELLO {
            match guest.stream.read(&mut guest.bytes[guest.have..]) {
                Ok(count) if count != 0 => guest.have += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It ended or failed before it said anything useful.
                _ => {
                    self.guests.remove(at);
                    return Ok(None);
                }
            }
        }
        let Some(Guest { stream, bytes, .. }) = self.guests.remove(at) else { return Ok(None) };
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| TransportError::NoEntropy)?;
        let now = self.began.elapsed().as_millis() as u64;
        let met = self.meeting.hello(&bytes, stream, random, now, |stream, answer| {
            // It fits the empty buffer of a new socket; if the peer is gone, its sockets end.
            let _ = stream.write_all(answer);
        });
        Ok(met.unwrap_or_else(|error| {
            self.last_refused = Some(error);
            None
        }))
    }

    fn sleep(&self, most: Duration) -> Result<(), TransportError> {
        let mut interest = vec![PollFd::new(&self.listener, PollFlags::IN)];
        interest.extend(self.guests.iter().map(|g| PollFd::new(&g.stream, PollFlags::IN)));
        wait(&mut interest, most).map_err(TransportError::socket("waiting for a connection"))
    }
}

/// Closes a [`Listener`] that another thread uses.
#[derive(Debug)]
pub struct Closer(TcpListener);

impl Closer {
    /// Nobody can connect any more: [`Listener::accept`] fails, also where it waits already.
    pub fn close(&self) {
        // Linux wakes who polls a listening socket that is shut down, and its `accept` fails.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Sleeps until one of the sockets is ready, at most so long.
pub(super) fn wait(interest: &mut [PollFd<'_>], most: Duration) -> io::Result<()> {
    let most = Timespec::try_from(most).ok();
    match poll(interest, most.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
