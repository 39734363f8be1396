//! The side of a connection that makes it.

use super::Handed;
use super::frame::{Decoder, Frame, MAGIC, Service, VERSION, proof};
use super::link::Link;
use crate::AgentError;
use crate::inner::Inner;
use crate::list::Owner;
use crate::metadata::random;
use crate::peer::Peer;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_peer::Reason;

/// A connection by which one thread speaks and waits.
struct Blocking {
    stream: TcpStream,
    decoder: Decoder,
    /// For errors.
    peer: String,
    start: Instant,
    timeout: Duration,
}

impl Blocking {
    fn open(
        address: SocketAddr,
        peer: String,
        start: Instant,
        timeout: Duration,
    ) -> Result<Self, AgentError> {
        let left = timeout.saturating_sub(start.elapsed()).max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(&address, left);
        let stream = stream.map_err(|error| AgentError::system("connect", error))?;
        // Frames are small, and somebody waits for each.
        let _ = stream.set_nodelay(true);
        Ok(Self { stream, decoder: Decoder::default(), peer, start, timeout })
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), AgentError> {
        let left = self.left()?;
        let sent = self.stream.set_write_timeout(Some(left));
        let sent = sent.and_then(|()| self.stream.write_all(&frame.encode()));
        sent.map_err(|error| self.failed(&error))
    }

    fn left(&self) -> Result<Duration, AgentError> {
        let left = self.timeout.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero());
        let what = || format!("an answer of {}", self.peer);
        left.ok_or_else(|| AgentError::Timeout { what: what(), after: self.timeout })
    }

    fn failed(&self, error: &std::io::Error) -> AgentError {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        match matches!(error.kind(), TimedOut | WouldBlock) {
            true => {
                let what = format!("an answer of {}", self.peer);
                AgentError::Timeout { what, after: self.timeout }
            }
            false => AgentError::PeerLost { peer: self.peer.clone(), why: error.to_string() },
        }
    }

    /// The next frame. A refusal is an error.
    fn receive(&mut self) -> Result<Frame<'static>, AgentError> {
        let refused = |why| AgentError::Refused { peer: self.peer.clone(), why };
        loop {
            match self.decoder.next().map_err(refused)? {
                Some(Frame::Refused { why }) => return Err(refused(why.into_owned())),
                Some(frame) => return Ok(frame),
                None => {}
            }
            let left = self.left()?;
            let mut bytes = [0; 4096];
            let read = self.stream.set_read_timeout(Some(left));
            let read = read.and_then(|()| self.stream.read(&mut bytes));
            match read.map_err(|error| self.failed(&error))? {
                0 => {
                    let why = "it ended the connection".to_owned();
                    return Err(AgentError::PeerLost { peer: self.peer.clone(), why });
                }
                count => self.decoder.feed(&bytes[..count]),
            }
        }
    }

    fn unexpected(&self, frame: &Frame<'_>) -> AgentError {
        let why = format!("it answered {frame:.80?}");
        AgentError::Refused { peer: self.peer.clone(), why }
    }

    /// Shows the token and has it shown; what the peer says of its memory, and its credits. Without a
    /// name the connection is for metadata alone.
    fn shake_hands(
        &mut self,
        inner: &Inner,
        to: Option<&Owner>,
    ) -> Result<(Vec<u32>, u32), AgentError> {
        let (from, nonce) = (inner.owner.clone(), random()?);
        let token = &inner.config.token;
        let hello = Frame::Hello {
            magic: MAGIC,
            version: VERSION,
            from: from.clone(),
            to: to.cloned(),
            nonce,
        };
        self.send(&hello)?;
        let theirs = match self.receive()? {
            Frame::Welcome { owner, nonce: theirs, proof: shown } => {
                if shown != proof(token, b"server", [&nonce, &theirs], &owner) {
                    let why = "it has another token".to_owned();
                    return Err(AgentError::Refused { peer: self.peer.clone(), why });
                }
                theirs
            }
            other => return Err(self.unexpected(&other)),
        };
        self.decoder.trusted = true;
        self.send(&Frame::Auth { proof: proof(token, b"client", [&nonce, &theirs], &from) })?;
        match self.receive()? {
            Frame::Ready { live, credits } => Ok((live, credits)),
            other => Err(self.unexpected(&other)),
        }
    }

    fn call(&mut self, service: Service, bytes: &[u8]) -> Result<Vec<u8>, AgentError> {
        self.send(&Frame::Call { number: 0, service, bytes: bytes.into() })?;
        loop {
            match self.receive()? {
                Frame::Reply { number: 0, answer: Ok(bytes) } => return Ok(bytes.into_owned()),
                Frame::Reply { number: 0, answer: Err(why) } => {
                    let (peer, why) = (self.peer.clone(), why.into_owned());
                    return Err(AgentError::Refused { peer, why });
                }
                Frame::Ping => self.send(&Frame::Pong)?,
                other => return Err(self.unexpected(&other)),
            }
        }
    }
}

/// Connects to a peer at the first of its addresses at which it is.
pub(super) fn connect(
    inner: &Arc<Inner>,
    peer: &Arc<Peer>,
    timeout: Duration,
) -> Result<Handed, AgentError> {
    let start = Instant::now();
    let name = peer.owner.to_string();
    let mut reasons = Vec::new();
    for &address in &peer.contact.addresses {
        let attempt = || {
            let mut stream = Blocking::open(address, name.clone(), start, timeout)?;
            let (live, credits) = stream.shake_hands(inner, Some(&peer.owner))?;
            let Blocking { stream, decoder, .. } = stream;
            let ready = stream.set_nonblocking(true);
            ready.map_err(|error| AgentError::system("fcntl", error))?;
            peer.only(&live);
            let link = Arc::new(Link::new(stream, inner.control.wake.clone(), Some(credits)));
            Ok(Handed { link, decoder, peer: peer.clone() })
        };
        match attempt() {
            Ok(handed) => return Ok(handed),
            // The peer itself has spoken: no other address says anything else.
            Err(error @ (AgentError::Refused { .. } | AgentError::Timeout { .. })) => {
                return Err(error);
            }
            Err(error) => reasons.push(Reason::new(address.to_string(), error)),
        }
    }
    let why = match reasons.len() {
        0 => "it has told of no address".to_owned(),
        _ => Reason::list(&reasons),
    };
    Err(AgentError::PeerLost { peer: name, why })
}

pub(super) fn ask(
    inner: &Inner,
    address: SocketAddr,
    timeout: Duration,
    service: Service,
    bytes: &[u8],
) -> Result<Vec<u8>, AgentError> {
    let name = format!("agent at {address}");
    let mut stream = Blocking::open(address, name, Instant::now(), timeout)?;
    stream.shake_hands(inner, None)?;
    stream.call(service, bytes)
}

/// The metadata of the agent that listens at `address`.
pub(crate) fn fetch(
    inner: &Inner,
    address: SocketAddr,
    timeout: Duration,
) -> Result<Vec<u8>, AgentError> {
    ask(inner, address, timeout, Service::Fetch, &[])
}

/// Has the agent that listens at `address` load metadata of this one.
pub(crate) fn load(
    inner: &Inner,
    address: SocketAddr,
    timeout: Duration,
    metadata: &[u8],
) -> Result<(), AgentError> {
    ask(inner, address, timeout, Service::Load, metadata).map(drop)
}
