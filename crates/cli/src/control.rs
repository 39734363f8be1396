//! The TCP connection over which client and server agree. It never waits inside the system, so
//! that whoever waits for a message can drive a NIC meanwhile, and notices a peer that has ended.

use std::io::{self, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What two ends say to each other.
pub(crate) trait Protocol: Sized {
    /// What both send first; the version follows.
    const NAME: [u8; 6];
    /// Raised with every change of a message.
    const VERSION: u16;
    /// The command that speaks it.
    const COMMAND: &'static str;

    /// As bytes, at most [`LONGEST`].
    fn encode(&self) -> Result<Vec<u8>, String>;
    /// From bytes, which may be anything.
    fn decode(bytes: &[u8]) -> Result<Self, String>;
    /// The kind of message, for a reader who expected another.
    fn kind(&self) -> &'static str;
    /// Why the sender ends, if the message is about that.
    fn failure(&self) -> Option<&str>;
}

/// Bytes of a preamble.
const PREAMBLE: usize = 8;
/// Bytes of a message at most.
pub(crate) const LONGEST: usize = 4 << 20;
/// Begins the line that tells where a server listens.
pub(crate) const LISTENING: &str = "waiting for a client at ";
/// How long the preamble of a peer may take.
const GREETING: Duration = Duration::from_secs(5);
/// How long a side that ends waits for the other to go.
const FAREWELL: Duration = Duration::from_secs(1);
/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);

/// Why two ends do not understand each other.
#[derive(Debug, Error)]
pub(crate) enum ControlError {
    /// Nobody there.
    #[error("no server at {host} port {port}: {cause} (tried for {waited:.1?})")]
    Unreachable { host: String, port: u16, waited: Duration, cause: io::Error },
    /// No address for this name.
    #[error("host {host:?} has no address: {cause}")]
    Unknown { host: String, cause: io::Error },
    /// Nowhere to listen.
    #[error("cannot listen at {addr}: {cause}")]
    Bind { addr: SocketAddr, cause: io::Error },
    /// No client.
    #[error("no client came to {addr} within {waited:.0?}")]
    NoClient { addr: SocketAddr, waited: Duration },
    /// Somebody else's protocol.
    #[error("{peer} is no `warpverbs {command}`: it began with {found:02x?}")]
    Stranger { peer: SocketAddr, command: &'static str, found: Vec<u8> },
    /// Another version.
    #[error("{peer} speaks version {theirs} of {command}'s protocol, this program version {ours}")]
    Version { peer: SocketAddr, command: &'static str, theirs: u16, ours: u16 },
    /// The other process is gone.
    #[error("the {who} at {peer} ended the connection{}", after(during))]
    Ended { who: &'static str, peer: SocketAddr, during: &'static str },
    /// The connection failed.
    #[error("connection to the {who} at {peer}: {cause}")]
    Io { who: &'static str, peer: SocketAddr, cause: io::Error },
    /// No message in time.
    #[error("the {who} at {peer} did not send {awaited:?} within {waited:.1?}")]
    Silent { who: &'static str, peer: SocketAddr, awaited: &'static str, waited: Duration },
    /// Bytes that are no message.
    #[error("the {who} at {peer} sent what is no message: {why}")]
    Malformed { who: &'static str, peer: SocketAddr, why: String },
    /// A message out of turn.
    #[error("the {who} at {peer} sent {found:?}, expected {expected:?}")]
    OutOfTurn { who: &'static str, peer: SocketAddr, found: &'static str, expected: &'static str },
    /// The other side says why it ends.
    #[error("the {who} at {peer}: {why}")]
    Theirs { who: &'static str, peer: SocketAddr, why: String },
}

fn after(during: &str) -> String {
    if during.is_empty() { String::new() } else { format!(" {during}") }
}

/// Listens for one client.
pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) fn bind(addr: SocketAddr) -> Result<Self, ControlError> {
        let bound = TcpListener::bind(addr).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        bound.map(Self).map_err(|cause| ControlError::Bind { addr, cause })
    }

    pub(crate) fn addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The first client that comes within `limit`.
    pub(crate) fn accept<M: Protocol>(self, limit: Duration) -> Result<Control<M>, ControlError> {
        let start = Instant::now();
        let addr = self.addr().unwrap_or(SocketAddr::from(([0; 4], 0)));
        loop {
            match self.0.accept() {
                Ok((stream, peer)) => return Control::greet(stream, peer, "client"),
                Err(_) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return Err(ControlError::NoClient { addr, waited: limit }),
            }
        }
    }
}

/// A connection to the other side.
#[derive(Debug)]
pub(crate) struct Control<M> {
    stream: TcpStream,
    peer: SocketAddr,
    who: &'static str,
    /// Bytes that arrived and are no whole message yet.
    inbox: Vec<u8>,
    /// What is being done, told if the peer ends meanwhile.
    during: &'static str,
    messages: PhantomData<fn() -> M>,
}

impl<M: Protocol> Control<M> {
    /// Connects to a server, which may begin to listen within `limit`.
    pub(crate) fn connect(host: &str, port: u16, limit: Duration) -> Result<Self, ControlError> {
        let start = Instant::now();
        let unknown = |cause| ControlError::Unknown { host: host.into(), cause };
        let found: Vec<_> = (host, port).to_socket_addrs().map_err(unknown)?.collect();
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        loop {
            for addr in &found {
                let left = limit.saturating_sub(start.elapsed()).max(AGAIN);
                match TcpStream::connect_timeout(addr, left) {
                    Ok(stream) => return Self::greet(stream, *addr, "server"),
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

    fn greet(stream: TcpStream, peer: SocketAddr, who: &'static str) -> Result<Self, ControlError> {
        let mut control =
            Self { stream, peer, who, inbox: Vec::new(), during: "", messages: PhantomData };
        control.prepare().map_err(|cause| control.io(cause))?;
        let version = M::VERSION.to_le_bytes();
        control.write(&[&M::NAME[..], &version].concat())?;
        let start = Instant::now();
        while control.inbox.len() < PREAMBLE {
            // One that ends at once has said why behind its preamble.
            let filled = control.fill();
            if control.inbox.len() >= PREAMBLE {
                break;
            }
            filled?;
            if start.elapsed() > GREETING {
                let (who, waited) = (control.who, GREETING);
                return Err(ControlError::Silent { who, peer, awaited: "preamble", waited });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let found: Vec<u8> = control.inbox.drain(..PREAMBLE).collect();
        let command = M::COMMAND;
        if found[..6] != M::NAME {
            return Err(ControlError::Stranger { peer, command, found });
        }
        let (theirs, ours) = (u16::from_le_bytes([found[6], found[7]]), M::VERSION);
        if theirs != ours {
            return Err(ControlError::Version { peer, command, theirs, ours });
        }
        Ok(control)
    }

    fn prepare(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        self.stream.set_nodelay(true)
    }

    /// The own address on the way to the peer.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The other side's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Says what is being done, for an error that comes meanwhile.
    pub(crate) fn during(&mut self, what: &'static str) {
        self.during = what;
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &M) -> Result<(), ControlError> {
        let body = message.encode().map_err(|error| self.malformed(error))?;
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        self.write(&bytes)
    }

    /// Sends the last message, and goes when the other side has. Bytes that lie unread when a
    /// connection is closed would take back what was sent.
    pub(crate) fn farewell(&mut self, message: &M) {
        // The other side may have been the first to fail; then it does not listen any more.
        if self.send(message).is_err() || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < FAREWELL && self.fill().is_ok() {
            self.inbox.clear();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A message, if one has arrived. The peer's word that it failed is an error.
    pub(crate) fn poll(&mut self) -> Result<Option<M>, ControlError> {
        let told = self.take()?;
        if told.is_some() {
            return self.judge(told);
        }
        // What was said before the end counts before the end.
        let filled = self.fill();
        let told = self.take()?;
        if told.is_none() {
            filled?;
        }
        self.judge(told)
    }

    /// Waits for a message, at most `limit`, while `turn` does something of use.
    pub(crate) fn wait(
        &mut self,
        awaited: &'static str,
        limit: Duration,
        mut turn: impl FnMut(),
    ) -> Result<M, ControlError> {
        let start = Instant::now();
        loop {
            if let Some(message) = self.poll()? {
                return Ok(message);
            }
            let waited = start.elapsed();
            if waited > limit {
                let (who, peer) = (self.who, self.peer);
                return Err(ControlError::Silent { who, peer, awaited, waited });
            }
            turn();
        }
    }

    /// A message that came out of turn.
    pub(crate) fn out_of_turn(&self, found: &M, expected: &'static str) -> ControlError {
        let (who, peer, found) = (self.who, self.peer, found.kind());
        ControlError::OutOfTurn { who, peer, found, expected }
    }

    fn judge(&self, message: Option<M>) -> Result<Option<M>, ControlError> {
        match message.as_ref().and_then(M::failure) {
            Some(why) => {
                let (who, peer, why) = (self.who, self.peer, why.to_owned());
                Err(ControlError::Theirs { who, peer, why })
            }
            None => Ok(message),
        }
    }

    /// A whole message of the inbox.
    fn take(&mut self) -> Result<Option<M>, ControlError> {
        let Some(head) = self.inbox.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > LONGEST {
            return Err(self.malformed(format!("{len} bytes, at most {LONGEST} are allowed")));
        }
        let Some(body) = self.inbox.get(4..4 + len) else { return Ok(None) };
        let message = M::decode(body).map_err(|error| self.malformed(error))?;
        self.inbox.drain(..4 + len);
        Ok(Some(message))
    }

    /// Takes what has arrived.
    fn fill(&mut self) -> Result<(), ControlError> {
        let mut chunk = [0; 16 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.ended()),
                Ok(n) => self.inbox.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
            if self.inbox.len() > LONGEST {
                return Ok(());
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), ControlError> {
        let start = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if start.elapsed() > GREETING {
                        return Err(self.io(ErrorKind::TimedOut.into()));
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    fn ended(&self) -> ControlError {
        ControlError::Ended { who: self.who, peer: self.peer, during: self.during }
    }

    fn io(&self, cause: io::Error) -> ControlError {
        match cause.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                self.ended()
            }
            _ => ControlError::Io { who: self.who, peer: self.peer, cause },
        }
    }

    fn malformed(&self, why: impl ToString) -> ControlError {
        ControlError::Malformed { who: self.who, peer: self.peer, why: why.to_string() }
    }
}
