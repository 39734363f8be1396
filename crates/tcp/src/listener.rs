//! Accepting links: many sockets in the middle of their handshake, none of which can hold up
//! the others.

use super::domain::{Domain, left};
use super::error::TcpError;
use super::link::Link;
use super::protocol::{Admission, HELLO, HandshakeError, Meeting, Met};
use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use warpverbs_meet::{Arrival, Deadline, Door, gives_way, poll, prepare};

/// Sockets that have not finished their handshake message. For one more, one of them
/// [gives way](gives_way).
const MOST_GUESTS: usize = 256;
/// Sockets accepted in a row before the handshakes of earlier ones are read again.
const TURN: usize = 64;
/// Time for a socket's handshake message, and again for all sockets of a link.
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
    door: Door,
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
        let bound =
            warpverbs_meet::listen(address).and_then(|bound| Ok((bound.local_addr()?, bound)));
        let (address, listener) = bound.map_err(TcpError::socket("listening"))?;
        Ok(Self {
            listener,
            door: Door::default(),
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
        self.last_refused.clone()
    }

    /// Waits for the next link.
    ///
    /// # Errors
    /// None was complete within `timeout`; the system's.
    pub fn accept(&mut self, domain: &Domain, timeout: Duration) -> Result<Link, TcpError> {
        let deadline = Deadline::after(timeout);
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
            let what = match self.door.closed_until() {
                Some(_) => "a link, for whose sockets no descriptor is free,",
                None => "a link",
            };
            self.sleep(left(deadline, what)?.min(PATIENCE))?;
        }
    }

    /// Takes sockets that wait at the listener; a link, if one of them was its last.
    fn welcome(&mut self, domain: &Domain) -> Result<Option<Met<TcpStream>>, TcpError> {
        for _ in 0..TURN {
            let (stream, from) = match self.door.accept(&self.listener, || self.listener.accept()) {
                Arrival::Guest(accepted) => accepted,
                // A socket in its handshake is closed for its descriptor, or nothing is accepted for a
                // while.
                Arrival::Short if self.evict(1) => continue,
                Arrival::Short => {
                    self.door.close();
                    return Ok(None);
                }
                Arrival::Nobody => return Ok(None),
                Arrival::Failed(error) => return Err(TcpError::socket("accepting")(error)),
            };
            let prepared = stream.set_nonblocking(true).and_then(|()| prepare(&stream));
            // One that fails already has gone.
            if prepared.and_then(|()| domain.size(&stream)).is_err() {
                continue;
            }
            let (bytes, since, source) = ([0; HELLO], Instant::now(), from.ip());
            self.guests.push_back(Guest { stream, source, bytes, have: 0, since });
            // A peer sends its message as soon as it is connected.
            if let Some(met) = self.hear(self.guests.len() - 1)? {
                return Ok(Some(met));
            }
            self.evict(MOST_GUESTS + 1);
        }
        Ok(None)
    }

    /// Closes the socket that gives way, if `most` have not finished their message.
    fn evict(&mut self, most: usize) -> bool {
        let guests = self.guests.iter().enumerate();
        let guests = guests.map(|(at, guest)| warpverbs_meet::Guest::stranger(at, guest.source));
        gives_way(guests, most).is_some_and(|at| self.guests.remove(at).is_some())
    }

    /// Reads a socket's handshake message as far as it has come; returns the link, if this was its last
    /// socket.
    fn hear(&mut self, at: usize) -> Result<Option<Met<TcpStream>>, TcpError> {
        let guest = &mut self.guests[at];
        while guest.have < HELLO {
            match guest.stream.read(&mut guest.bytes[guest.have..]) {
                Ok(count) if count != 0 => guest.have += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It ended or failed before its handshake message was complete.
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
        let closed = self.door.closed_until();
        let listener = closed.is_none().then(|| PollFd::new(&self.listener, PollFlags::IN));
        let guests = self.guests.iter().map(|guest| PollFd::new(&guest.stream, PollFlags::IN));
        let mut interest: Vec<_> = listener.into_iter().chain(guests).collect();
        let pause = closed.map(|until| until.saturating_duration_since(Instant::now()));
        let ready = poll(&mut interest, Some(pause.map_or(most, |pause| most.min(pause))));
        ready.map(drop).map_err(TcpError::socket("waiting for a link"))
    }
}

/// Closes a [`Listener`] that another thread uses.
#[derive(Debug)]
pub struct Closer(TcpListener);

impl Closer {
    /// Ends the listener: connections are refused, and [`Listener::accept`] fails, also a call that waits
    /// already.
    pub fn close(&self) {
        // Linux wakes a thread that polls a listening socket which is shut down, and its `accept` fails.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}
