//! Accepting links: many sockets in the middle of their handshake, none of which can hold up
//! the others.

use super::domain::Domain;
use super::error::TcpError;
use super::link::Link;
use super::protocol::{Admission, HELLO, HandshakeError, Meeting, Met, oldest_of_most};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Sockets that have not finished their handshake message. One more pushes out the oldest of the
/// source that has the most.
const MOST_GUESTS: usize = 256;
/// Sockets that are accepted before those that were accepted are heard again.
const TURN: usize = 64;
/// A socket has so long to say its handshake, and a link to bring its sockets.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket whose handshake message is not complete.
struct Guest {
    stream: TcpStream,
    source: IpAddr,
    bytes: [u8; HELLO],
    have: usize,
    since: Instant,
}

/// Takes links at an address.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    meeting: Meeting<TcpStream>,
    guests: VecDeque<Guest>,
    began: Instant,
    last_refused: Option<HandshakeError>,
}

impl Listener {
    pub(super) fn bind(
        domain: &Domain,
        address: SocketAddr,
        admission: Admission,
    ) -> Result<Self, TcpError> {
        let fail = TcpError::socket("listening");
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
            meeting: Meeting::new(domain.config.offer, admission),
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
    pub fn closer(&self) -> Result<Closer, TcpError> {
        let listener = self.listener.try_clone();
        listener.map(Closer).map_err(TcpError::socket("duplicating a listener"))
    }

    /// Why a socket was refused most recently. Refused sockets do not end [`Listener::accept`].
    pub fn last_refused(&self) -> Option<HandshakeError> {
        self.last_refused
    }

    /// Waits for the next link.
    ///
    /// # Errors
    /// None was complete within `timeout`; the system's.
    pub fn accept(&mut self, domain: &Domain, timeout: Duration) -> Result<Link, TcpError> {
        let deadline = Instant::now() + timeout;
        loop {
            let now = Instant::now();
            // First, so that their descriptors are free for others.
            self.guests.retain(|guest| now - guest.since < PATIENCE);
            let old = (now - self.began).saturating_sub(PATIENCE);
            self.meeting.expire(old.as_millis() as u64);
            let mut at = 0;
            while at < self.guests.len() {
                let before = self.guests.len();
                if let Some(met) = self.hear(at)? {
                    return domain.begin(met);
                }
                at += usize::from(self.guests.len() == before);
            }
            if let Some(met) = self.welcome(domain)? {
                return domain.begin(met);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = "a connection";
                return Err(TcpError::Timeout { what, waited: timeout });
            }
            self.sleep(left.min(PATIENCE))?;
        }
    }

    /// Takes sockets that wait at the listener; a link, if one of them was its last.
    fn welcome(&mut self, domain: &Domain) -> Result<Option<Met<TcpStream>>, TcpError> {
        for _ in 0..TURN {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    // The peer was quicker.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                    _ if is_exhausted(&error) && self.evict() => continue,
                    _ => return Err(TcpError::socket("accepting")(error)),
                },
            };
            if stream.set_nonblocking(true).is_err() || domain.prepare(&stream).is_err() {
                continue;
            }
            let (bytes, since) = ([0; HELLO], Instant::now());
            let source = from.ip().to_canonical();
            self.guests.push_back(Guest { stream, source, bytes, have: 0, since });
            // A peer says its message as soon as it is connected.
            if let Some(met) = self.hear(self.guests.len() - 1)? {
                return Ok(Some(met));
            }
            if self.guests.len() > MOST_GUESTS {
                self.evict();
            }
        }
        Ok(None)
    }

    /// Closes the oldest socket of the source with the most sockets that have not finished their
    /// message. Whether there was any.
    fn evict(&mut self) -> bool {
        let guests = self.guests.iter().map(|guest| (guest.source, guest.since));
        oldest_of_most(guests).is_some_and(|at| self.guests.remove(at).is_some())
    }

    /// Reads what a socket has said so far; its link, if this was the last socket.
    fn hear(&mut self, at: usize) -> Result<Option<Met<TcpStream>>, TcpError> {
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
        let Some(guest) = self.guests.remove(at) else { return Ok(None) };
        let Guest { stream, source, bytes, .. } = guest;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| TcpError::NoEntropy)?;
        let now = self.began.elapsed().as_millis() as u64;
        let met = self.meeting.hello(&bytes, stream, source, random, now, |stream, answer| {
            // It fits the empty buffer of a new socket; if the peer is gone, its sockets end.
            let _ = stream.write_all(answer);
        });
        Ok(met.unwrap_or_else(|error| {
            self.last_refused = Some(error);
            None
        }))
    }

    fn sleep(&self, most: Duration) -> Result<(), TcpError> {
        let mut interest = vec![PollFd::new(&self.listener, PollFlags::IN)];
        interest.extend(self.guests.iter().map(|g| PollFd::new(&g.stream, PollFlags::IN)));
        wait(&mut interest, most).map_err(TcpError::socket("waiting for a connection"))
    }
}

/// Whether the process, or the system, has no descriptor or no memory for another socket.
fn is_exhausted(error: &io::Error) -> bool {
    let errnos = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|errno| errnos.contains(&errno))
}

/// Closes a [`Listener`] that another thread uses.
#[derive(Debug)]
pub struct Closer(TcpListener);

impl Closer {
    /// Nobody can connect any more: [`Listener::accept`] fails, also where it waits already.
    pub fn close(&self) {
        // Linux wakes a thread that polls a listening socket which is shut down, and its `accept` fails.
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
