//! The end of a connection that makes it.

use super::frame::{Frame, Longest, MAGIC, Service, VERSION};
use super::handshake::{Key, Role, same};
use super::link::Link;
use super::remote::Remote;
use super::shared::{Control, Handed, Identity};
use crate::AgentError;
use crate::deadline::Deadline;
use crate::lock;
use crate::metadata::random;
use crate::names::Owner;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_meet::{Frames, Timed};
use warpverbs_peer::Reason;

/// Attempts at a handshake that the other end breaks off: an agent under a flood of connections closes
/// those that have not authenticated.
const ATTEMPTS: u32 = 8;
/// Before the second one; each time twice as long.
const AGAIN: Duration = Duration::from_millis(5);

/// Attempts at a handshake with an agent that has no file descriptor for it: 2.5 s in all.
const SHORT_ATTEMPTS: u32 = 10;
/// The reason that such an agent gives.
pub(super) const SHORT: &str = "its process is out of file descriptors (ulimit -n)";

/// A connection that one thread uses with blocking calls, each within a deadline.
pub(crate) struct Blocking {
    pub(crate) stream: TcpStream,
    decoder: Frames,
    /// For errors.
    peer: String,
    limit: Deadline,
}

/// The purpose of a connection.
pub(crate) struct Wanted<'a> {
    pub(crate) key: Key,
    /// `None` for a connection that only exchanges metadata, with any agent.
    pub(crate) to: Option<&'a Owner>,
}

impl Blocking {
    fn open(
        address: SocketAddr,
        peer: String,
        limit: Deadline,
        share: Duration,
    ) -> Result<Self, AgentError> {
        let stream = warpverbs_meet::connect(address, share);
        let stream = stream.map_err(|error| AgentError::system("connect", error))?;
        Ok(Self { stream, decoder: Frames::new(Longest::Stranger.bytes()), peer, limit })
    }

    pub(crate) fn send(&mut self, frame: &Frame<'_>) -> Result<(), AgentError> {
        let sent = self.timed().write_all(&frame.encode());
        sent.map_err(|error| self.failed(&error))
    }

    fn timed(&self) -> Timed<'_> {
        Timed { stream: &self.stream, deadline: self.limit.0 }
    }

    fn left(&self) -> Result<Duration, AgentError> {
        self.limit.left(|| format!("an answer from {}", self.peer))
    }

    fn failed(&self, error: &io::Error) -> AgentError {
        match error.kind() == io::ErrorKind::TimedOut {
            true => self.limit.late(format!("an answer from {}", self.peer)),
            false => AgentError::PeerLost { peer: self.peer.clone(), why: error.to_string() },
        }
    }

    fn refused(&self, why: String) -> AgentError {
        AgentError::Refused { peer: self.peer.clone(), why }
    }

    /// The next frame. A refusal is an error.
    pub(crate) fn receive(&mut self) -> Result<Frame<'static>, AgentError> {
        loop {
            match Frame::next(&mut self.decoder).map_err(|why| self.refused(why))? {
                Some(Frame::Refused { why }) => return Err(self.refused(why.into_owned())),
                Some(frame) => return Ok(frame),
                None => {}
            }
            let timed = Timed { stream: &self.stream, deadline: self.limit.0 };
            let read = self.decoder.read(timed);
            if read.map_err(|error| self.failed(&error))? == 0 {
                let why = "it ended the connection".to_owned();
                return Err(AgentError::PeerLost { peer: self.peer.clone(), why });
            }
        }
    }

    fn unexpected(&self, frame: &Frame<'_>) -> AgentError {
        self.refused(format!("it answered {frame:.80?}"))
    }

    /// Shows that this end has the key, and has the other end show it. Gives the memory that the peer
    /// has registered, and credits.
    fn shake_hands(
        &mut self,
        me: &Identity,
        wanted: &Wanted<'_>,
    ) -> Result<(Vec<u32>, u32), AgentError> {
        let (from, key, nonce) = (&me.owner, &wanted.key, random()?);
        self.send(&Frame::Hello {
            magic: MAGIC,
            version: VERSION,
            from: from.clone(),
            to: wanted.to.cloned(),
            nonce,
            proof: key.knock(&nonce, from),
        })?;
        let theirs = match self.receive()? {
            Frame::Welcome { owner, nonce: theirs, proof } => {
                let expected = key.proof(Role::Accepter, [&nonce, &theirs], &owner);
                if !same(&expected, &proof) || wanted.to.is_some_and(|to| *to != owner) {
                    return Err(self.refused("authentication failed: tokens differ".to_owned()));
                }
                theirs
            }
            other => return Err(self.unexpected(&other)),
        };
        self.decoder.longest = Longest::Metadata.bytes();
        let own = Key::of_agent(&me.token, &me.secret);
        self.send(&Frame::Auth {
            proof: key.proof(Role::Maker, [&nonce, &theirs], from),
            identity: own.proof(Role::Identity, [&nonce, &theirs], from),
        })?;
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
                    return Err(self.refused(why.into_owned()));
                }
                Frame::Ping => self.send(&Frame::Pong)?,
                other => return Err(self.unexpected(&other)),
            }
        }
    }
}

/// A connection to `address` whose handshake is done, with its result.
pub(crate) fn establish(
    me: &Identity,
    address: SocketAddr,
    (peer, limit, share): (&str, Deadline, Duration),
    wanted: &Wanted<'_>,
) -> Result<(Blocking, (Vec<u32>, u32)), AgentError> {
    let (mut attempt, mut pause) = (1, AGAIN);
    loop {
        let mut stream = Blocking::open(address, peer.to_owned(), limit, share)?;
        match stream.shake_hands(me, wanted) {
            Ok(ready) => return Ok((stream, ready)),
            Err(AgentError::PeerLost { .. }) if attempt < ATTEMPTS => {}
            Err(AgentError::Refused { why, .. }) if why == SHORT && attempt < SHORT_ATTEMPTS => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(pause.min(stream.left()?));
        (attempt, pause) = (attempt + 1, pause * 2);
    }
}

/// The connection to a peer, which is made if there is none. All of it ends by `deadline`, and other
/// threads that need the connection wait each for its own time.
pub(crate) fn connect(
    control: &Control,
    peer: &Arc<dyn Remote>,
    deadline: &Deadline,
) -> Result<Arc<Link>, AgentError> {
    peer.check()?;
    control.check()?;
    let mut own = None;
    let attempt = || {
        let handed = make(control, peer, *deadline)?;
        Ok(own.insert(handed).link.clone())
    };
    let what = || format!("a connection to {}", peer.owner());
    let link = peer.slot().get_or_make(deadline, what, attempt)?;
    if let Some(handed) = own {
        lock(&control.handed).push(handed);
        control.wake.wake();
        // An end of its use meanwhile, or of this agent, has not found the connection.
        let usable = peer.check().and_then(|()| control.check());
        usable.inspect_err(|why| link.lose(why.clone()))?;
    }
    match link.is_lost() {
        true => Err(link.why()),
        false => Ok(link),
    }
}

/// Connects to a peer at the first of its addresses at which it is.
pub(crate) fn make(
    control: &Control,
    peer: &Arc<dyn Remote>,
    limit: Deadline,
) -> Result<Handed, AgentError> {
    let (owner, addresses) = (peer.owner(), peer.addresses());
    let name = owner.to_string();
    let key = Key::of_agent(&control.own.token, peer.secret());
    let wanted = Wanted { key, to: Some(owner) };
    let mut reasons = Vec::new();
    for (at, &address) in addresses.iter().enumerate() {
        let left = limit.left(|| format!("a connection to {name}"))?;
        // An address that does not answer leaves time for the others.
        let share = left / (addresses.len() - at) as u32;
        let attempt = || {
            let (stream, (live, credits)) =
                establish(&control.own, address, (&name, Deadline::after(share), share), &wanted)?;
            let Blocking { stream, mut decoder, .. } = stream;
            decoder.longest = Longest::Peer.bytes();
            let ready = stream.set_nonblocking(true);
            ready.map_err(|error| AgentError::system("fcntl", error))?;
            peer.only(&live);
            let link = Arc::new(Link::new(stream, control.wake.clone(), Some(credits)));
            Ok(Handed { link, decoder, peer: peer.clone() })
        };
        match attempt() {
            Ok(handed) => return Ok(handed),
            // The peer itself refused, so its other addresses would refuse too.
            Err(error @ AgentError::Refused { .. }) => return Err(error),
            Err(AgentError::Timeout { .. }) if at + 1 == addresses.len() => {
                return Err(limit.late(format!("an answer from {name}")));
            }
            Err(error) => reasons.push(Reason::new(address.to_string(), error)),
        }
    }
    let why = match reasons.len() {
        0 => "its metadata has no address".to_owned(),
        _ => Reason::list(&reasons),
    };
    Err(AgentError::PeerLost { peer: name, why })
}

pub(crate) fn ask(
    me: &Identity,
    address: SocketAddr,
    timeout: Duration,
    service: Service,
    bytes: &[u8],
) -> Result<Vec<u8>, AgentError> {
    let key = me.key_of_connection(false).ok_or(AgentError::Config {
        field: "token",
        value: "not set".into(),
        expected: "the job's token: metadata is exchanged by address only between agents that share it",
    })?;
    let (name, limit) = (format!("agent at {address}"), Deadline::after(timeout));
    let share = limit.left(|| format!("an answer from {name}"))?;
    let wanted = Wanted { key, to: None };
    let (mut stream, _) = establish(me, address, (&name, limit, share), &wanted)?;
    stream.call(service, bytes)
}

/// The metadata of the agent that listens at `address`.
pub(crate) fn fetch(
    me: &Identity,
    address: SocketAddr,
    timeout: Duration,
) -> Result<Vec<u8>, AgentError> {
    ask(me, address, timeout, Service::Fetch, &[])
}

/// Has the agent that listens at `address` load metadata of this one.
pub(crate) fn load(
    me: &Identity,
    address: SocketAddr,
    timeout: Duration,
    metadata: &[u8],
) -> Result<(), AgentError> {
    ask(me, address, timeout, Service::Load, metadata).map(drop)
}
