//! One connection: preamble, messages, and waits that end.

use crate::{ControlError, Message, Role};
use std::io::{self, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of a preamble.
pub const PREAMBLE: usize = 9;
/// Bytes of a message at most.
pub const LONGEST: usize = 4 << 20;
/// Timeout of a peer's preamble, and of a peer that reads nothing of what is sent.
const PROMPT: Duration = Duration::from_secs(5);
/// How long a side that gives up waits for the other to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Between two looks at a stream that has nothing to read, or takes nothing.
const PAUSE: Duration = Duration::from_micros(100);

/// Bytes both ways. Calls do not block: they give [`ErrorKind::WouldBlock`] instead.
pub trait Stream: Read + Write {
    /// Tells the other end that nothing more will be written.
    ///
    /// # Errors
    /// As the operating system has them.
    fn finish(&mut self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// A connection whose ends send each other `M`.
#[derive(Debug)]
pub struct Connection<M, S = TcpStream> {
    pub(crate) stream: S,
    /// The other end's address, for errors.
    peer: String,
    /// This end.
    role: Role,
    /// Bytes that arrived and are not a whole message yet.
    inbox: Vec<u8>,
    /// When the connection began.
    since: Instant,
    /// What is being done, for the error of a peer that ends meanwhile.
    during: &'static str,
    messages: PhantomData<fn() -> M>,
}

impl<M: Message, S: Stream> Connection<M, S> {
    /// Sends the preamble over `stream`, which does not block, and waits for the peer's.
    ///
    /// # Errors
    /// The stream's, and those of a peer that is another program, version or role, or silent.
    pub fn open(stream: S, peer: String, role: Role) -> Result<Self, ControlError> {
        let mut connection = Self::begin(stream, peer, role)?;
        while !connection.greeted()? {
            std::thread::sleep(PAUSE);
        }
        Ok(connection)
    }

    /// Sends the preamble.
    pub(crate) fn begin(stream: S, peer: String, role: Role) -> Result<Self, ControlError> {
        let (inbox, since) = (Vec::new(), Instant::now());
        let mut begun =
            Self { stream, peer, role, inbox, since, during: "", messages: PhantomData };
        let own = [&M::NAME[..], &M::VERSION.to_le_bytes(), &[role.byte()]].concat();
        begun.write(&own)?;
        Ok(begun)
    }

    /// Whether the peer has shown its preamble. It may be asked again until then.
    pub(crate) fn greeted(&mut self) -> Result<bool, ControlError> {
        // A peer that ends at once has said why behind its preamble.
        let filled = if self.inbox.len() < PREAMBLE { self.fill() } else { Ok(()) };
        let peer = || self.peer.clone();
        let start = &self.inbox[..self.inbox.len().min(PREAMBLE)];
        let name = &start[..start.len().min(M::NAME.len())];
        let program = M::PROGRAM;
        if !M::NAME.starts_with(name) {
            return Err(ControlError::Stranger { peer: peer(), program, found: start.to_vec() });
        }
        if let Some(&[a, b]) = start.get(6..8)
            && u16::from_le_bytes([a, b]) != M::VERSION
        {
            let (theirs, ours) = (u16::from_le_bytes([a, b]), M::VERSION);
            return Err(ControlError::Version { peer: peer(), program, theirs, ours });
        }
        match start.get(8) {
            Some(&byte) if byte == self.role.other().byte() => {}
            Some(&byte) if byte == self.role.byte() => {
                let role = self.role;
                return Err(ControlError::SameRole { peer: peer(), program, role });
            }
            Some(_) => {
                return Err(ControlError::Stranger {
                    peer: peer(),
                    program,
                    found: start.to_vec(),
                });
            }
            None => {
                filled?;
                if self.since.elapsed() > PROMPT {
                    return Err(self.silent("preamble", PROMPT));
                }
                return Ok(false);
            }
        }
        self.inbox.drain(..PREAMBLE);
        Ok(true)
    }

    /// Names the current activity, for the error if the peer ends the connection meanwhile.
    pub fn during(&mut self, what: &'static str) {
        self.during = what;
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The stream's, and [`ControlError::Unsendable`] for one that is longer than [`LONGEST`].
    pub fn send(&mut self, message: &M) -> Result<(), ControlError> {
        let kind = message.kind();
        let body = postcard::to_stdvec(message)
            .map_err(|error| ControlError::Unsendable { kind, why: error.to_string() })?;
        if body.len() > LONGEST {
            let why = format!("{} bytes, at most {LONGEST} are allowed", body.len());
            return Err(ControlError::Unsendable { kind, why });
        }
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        self.write(&bytes)
    }

    /// Sends the last message, and waits for the other end to close the connection, a second at
    /// most. Closing with unread bytes would make TCP discard what was sent.
    pub fn farewell(&mut self, message: &M) {
        // The other side may have failed first; then it reads no more.
        if self.send(message).is_err() || self.stream.finish().is_err() {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < FAREWELL && self.fill().is_ok() {
            self.inbox.clear();
            std::thread::sleep(PAUSE);
        }
    }

    /// A message, if one has arrived.
    ///
    /// # Errors
    /// The stream's, bytes that are no message, and a message that says that the peer gave up.
    pub fn poll(&mut self) -> Result<Option<M>, ControlError> {
        let arrived = self.take()?;
        if arrived.is_some() {
            return self.judge(arrived);
        }
        // What was said before the end counts before the end.
        let filled = self.fill();
        let arrived = self.take()?;
        if arrived.is_none() {
            filled?;
        }
        self.judge(arrived)
    }

    /// Waits for a message, at most `limit`, and calls `idle` while there is none.
    ///
    /// # Errors
    /// Those of [`Self::poll`], and [`ControlError::Silent`], which says what was `awaited`.
    pub fn wait(
        &mut self,
        awaited: &'static str,
        limit: Duration,
        mut idle: impl FnMut(),
    ) -> Result<M, ControlError> {
        let start = Instant::now();
        loop {
            if let Some(message) = self.poll()? {
                return Ok(message);
            }
            let waited = start.elapsed();
            if waited > limit {
                return Err(self.silent(awaited, waited));
            }
            idle();
        }
    }

    /// As [`Self::wait`], sleeping between two looks.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn recv(&mut self, awaited: &'static str, limit: Duration) -> Result<M, ControlError> {
        self.wait(awaited, limit, || std::thread::sleep(PAUSE))
    }

    /// The error for a message of another kind than `expected`.
    pub fn out_of_turn(&self, found: &M, expected: &'static str) -> ControlError {
        let (who, peer, found) = (self.role.other(), self.peer.clone(), found.kind());
        ControlError::OutOfTurn { who, peer, found, expected }
    }

    /// A peer's failure is an error here.
    fn judge(&self, message: Option<M>) -> Result<Option<M>, ControlError> {
        match message.as_ref().and_then(M::failure) {
            Some(why) => {
                let (who, peer, why) = (self.role.other(), self.peer.clone(), why.to_owned());
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
        let message = match postcard::take_from_bytes(body) {
            Ok((message, [])) => message,
            Ok((_, rest)) => return Err(self.malformed(format!("{} bytes behind it", rest.len()))),
            Err(error) => return Err(self.malformed(error.to_string())),
        };
        self.inbox.drain(..4 + len);
        Ok(Some(message))
    }

    /// Reads what has arrived, at most as much as the longest message.
    fn fill(&mut self) -> Result<(), ControlError> {
        let mut chunk = [0; 16 << 10];
        while self.inbox.len() < LONGEST + 4 {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.ended()),
                Ok(n) => self.inbox.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), ControlError> {
        let mut progress = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(self.ended()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    progress = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if progress.elapsed() > PROMPT {
                        return Err(self.io(ErrorKind::TimedOut.into()));
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    fn ended(&self) -> ControlError {
        let (who, peer) = (self.role.other(), self.peer.clone());
        ControlError::Ended { who, peer, during: self.during }
    }

    fn io(&self, cause: io::Error) -> ControlError {
        match cause.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                self.ended()
            }
            _ => {
                let (who, peer) = (self.role.other(), self.peer.clone());
                ControlError::Io { who, peer, cause }
            }
        }
    }

    fn silent(&self, awaited: &'static str, waited: Duration) -> ControlError {
        let (who, peer) = (self.role.other(), self.peer.clone());
        ControlError::Silent { who, peer, awaited, waited }
    }

    fn malformed(&self, why: String) -> ControlError {
        let (who, peer) = (self.role.other(), self.peer.clone());
        ControlError::Malformed { who, peer, why }
    }
}
