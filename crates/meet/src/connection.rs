//! One connection: preamble, messages, and waits that end.

use crate::{Deadline, FrameError, Frames, Hello, HelloError, MeetError, frame};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::io::{self, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of a preamble.
pub const PREAMBLE: usize = 9;
/// Bytes of a message at most.
pub const LONGEST: usize = 4 << 20;
/// How long a peer may take for both preambles.
pub(crate) const PROMPT: Duration = Duration::from_secs(5);
/// How long a peer may take to read a message unless the program says otherwise, the longest one at
/// 140 kB/s.
const TAKEN: Duration = Duration::from_secs(30);
/// How long an end that gives up waits for the other to close.
const FAREWELL: Duration = Duration::from_secs(1);
/// Between two attempts on a stream that has nothing to read, or is full.
const PAUSE: Duration = Duration::from_micros(100);

/// A message of two programs to each other.
pub trait Message: Serialize + DeserializeOwned {
    /// Name of the protocol.
    const NAME: [u8; 6];
    /// Raised with every change of a message.
    const VERSION: u16;
    /// The program that speaks it, for errors.
    const PROGRAM: &'static str;

    /// The kind of message, for errors.
    fn kind(&self) -> &'static str;
}

/// The encoding: a message, or the reason why the sender gives up.
#[derive(Serialize, Deserialize)]
enum Said<M> {
    Message(M),
    /// Why the sender gives up.
    Failed(String),
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that connects.
    Client,
    /// The end that listens.
    Server,
}

impl Role {
    /// The other end's.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Client => b'c',
            Self::Server => b's',
        }
    }
}

impl Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// Bytes both ways. Calls do not block: they give [`ErrorKind::WouldBlock`] instead.
pub trait Stream: Read + Write {
    /// Shuts down the writing side, which the other end sees as the end of the stream.
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
    /// Bytes that arrived and were not given out.
    inbox: Frames,
    /// By when the peer must have shown its preamble.
    greeting: Deadline,
    /// How long the peer may take to read a message.
    taken: Duration,
    /// The work under way, for the error of a peer that ends meanwhile.
    during: &'static str,
    messages: PhantomData<fn() -> M>,
}

impl<M: Message, S: Stream> Connection<M, S> {
    /// Sends the preamble over `stream`, which does not block, and waits for the peer's, `limit` at
    /// most, and 5 s at most.
    ///
    /// # Errors
    /// The stream's, and those of a peer that is another program, version or role, or silent.
    pub fn open(stream: S, peer: String, role: Role, limit: Duration) -> Result<Self, MeetError> {
        let mut connection = Self::begin(stream, peer, role, limit.min(PROMPT))?;
        while !connection.greeted()? {
            std::thread::sleep(PAUSE);
        }
        Ok(connection)
    }

    /// Sends the preamble. The peer has `limit` for both.
    pub(crate) fn begin(
        stream: S,
        peer: String,
        role: Role,
        limit: Duration,
    ) -> Result<Self, MeetError> {
        let (inbox, greeting) = (Frames::new(LONGEST), Deadline::after(limit));
        let (taken, during, messages) = (TAKEN, "", PhantomData);
        let mut begun = Self { stream, peer, role, inbox, greeting, taken, during, messages };
        let own = [Self::hello().bytes(), vec![role.byte()]].concat();
        begun.write(&own, limit)?;
        Ok(begun)
    }

    /// Changes how long the peer may take to read a message, from 30 s: that is the longest one at
    /// 140 kB/s.
    #[must_use]
    pub fn send_limit(self, limit: Duration) -> Self {
        Self { taken: limit, ..self }
    }

    fn hello() -> Hello {
        Hello { magic: &M::NAME, version: M::VERSION }
    }

    /// Whether the peer's preamble has arrived and is right. May be called again until then.
    pub(crate) fn greeted(&mut self) -> Result<bool, MeetError> {
        // A peer that ends at once has sent the reason behind its preamble.
        let filled = if self.inbox.rest().len() < PREAMBLE { self.fill() } else { Ok(()) };
        let (peer, program, role) = (|| self.peer.clone(), M::PROGRAM, self.role);
        let other = |why: HelloError| MeetError::Hello { peer: peer(), program, why };
        let start = self.inbox.rest();
        Self::hello().check(start).map_err(other)?;
        match start.get(PREAMBLE - 1) {
            Some(&byte) if byte == role.other().byte() => {
                self.inbox.skip(PREAMBLE);
                Ok(true)
            }
            Some(&byte) if byte == role.byte() => {
                Err(MeetError::SameRole { peer: peer(), program, role })
            }
            Some(_) => Err(other(Self::hello().other_program(&start[..PREAMBLE]))),
            None => {
                filled?;
                match self.greeting.passed() {
                    true => Err(self.silent("preamble", self.greeting.timeout())),
                    false => Ok(false),
                }
            }
        }
    }

    /// Names the current activity, for the error if the peer ends the connection meanwhile.
    pub fn during(&mut self, what: &'static str) {
        self.during = what;
    }

    /// Sends a message, which the peer must take within the [limit](Self::send_limit).
    ///
    /// # Errors
    /// The stream's, `TimedOut` among them, and [`MeetError::Unsendable`] for one that is longer than
    /// [`LONGEST`].
    pub fn send(&mut self, message: M) -> Result<(), MeetError> {
        self.say(message.kind(), &Said::Message(message), self.taken)
    }

    fn say(
        &mut self,
        kind: &'static str,
        said: &Said<M>,
        limit: Duration,
    ) -> Result<(), MeetError> {
        let bytes = frame(said, LONGEST);
        self.write(&bytes.map_err(|why| MeetError::Unsendable { kind, why })?, limit)
    }

    /// The result of `work`. On an error the other end is sent its text.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn failing<R, E: Display>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let outcome = work(self);
        if let Err(error) = &outcome {
            self.give_up(format!("{error:#}"));
        }
        outcome
    }

    /// Sends the reason, and waits for the other end to close the connection, a second at most. Closing
    /// with unread bytes would make TCP discard what was sent.
    fn give_up(&mut self, why: String) {
        // The other side may have failed first; then it reads no more.
        let start = Instant::now();
        let said = self.say("failure", &Said::Failed(why), FAREWELL);
        if said.is_err() || self.stream.finish().is_err() {
            return;
        }
        while start.elapsed() < FAREWELL && self.fill().is_ok() {
            self.inbox.skip(usize::MAX);
            std::thread::sleep(PAUSE);
        }
    }

    /// A message, if one has arrived.
    ///
    /// # Errors
    /// The stream failed, its bytes are not a message, or the peer gave up, with its reason.
    pub fn poll(&mut self) -> Result<Option<M>, MeetError> {
        // Messages that came before the end are taken before the end is reported.
        let filled = if self.inbox.is_ready() { Ok(()) } else { self.fill() };
        match self.inbox.take().map_err(|why| self.malformed(why))? {
            Some(Said::Message(message)) => Ok(Some(message)),
            Some(Said::Failed(why)) => {
                Err(MeetError::Theirs { who: self.role.other(), peer: self.peer.clone(), why })
            }
            None => filled.map(|()| None),
        }
    }

    /// Waits for a message, at most `limit`, and calls `idle` while there is none.
    ///
    /// # Errors
    /// Those of [`Self::poll`], and [`MeetError::Silent`], which says what was `awaited`.
    pub fn wait(
        &mut self,
        awaited: &'static str,
        limit: Duration,
        mut idle: impl FnMut(),
    ) -> Result<M, MeetError> {
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
    pub fn recv(&mut self, awaited: &'static str, limit: Duration) -> Result<M, MeetError> {
        self.wait(awaited, limit, || std::thread::sleep(PAUSE))
    }

    /// The error for a message of another kind than `expected`.
    pub fn out_of_turn(&self, found: M, expected: &'static str) -> MeetError {
        let (who, peer, found) = (self.role.other(), self.peer.clone(), found.kind());
        MeetError::OutOfTurn { who, peer, found, expected }
    }

    /// Reads what has arrived, at most as much as the longest message.
    fn fill(&mut self) -> Result<(), MeetError> {
        while self.inbox.rest().len() < LONGEST + 4 {
            match self.inbox.read(&mut self.stream) {
                Ok(0) => return Err(self.ended()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` within `limit`, however slowly the peer reads.
    fn write(&mut self, mut bytes: &[u8], limit: Duration) -> Result<(), MeetError> {
        let start = Instant::now();
        while !bytes.is_empty() {
            if start.elapsed() > limit {
                return Err(self.io(ErrorKind::TimedOut.into()));
            }
            match self.stream.write(bytes) {
                Ok(0) => return Err(self.ended()),
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    fn ended(&self) -> MeetError {
        let (who, peer) = (self.role.other(), self.peer.clone());
        MeetError::Ended { who, peer, during: self.during }
    }

    fn io(&self, cause: io::Error) -> MeetError {
        match cause.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                self.ended()
            }
            _ => {
                let (who, peer) = (self.role.other(), self.peer.clone());
                MeetError::Io { who, peer, cause }
            }
        }
    }

    fn silent(&self, awaited: &'static str, waited: Duration) -> MeetError {
        let (who, peer) = (self.role.other(), self.peer.clone());
        MeetError::Silent { who, peer, awaited, waited }
    }

    fn malformed(&self, why: FrameError) -> MeetError {
        let (who, peer) = (self.role.other(), self.peer.clone());
        MeetError::Malformed { who, peer, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a byte at a time, and none at every other call.
    #[derive(Default)]
    struct Slow {
        taken: usize,
        is_full: bool,
    }

    impl Read for Slow {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::WouldBlock.into())
        }
    }

    impl Write for Slow {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.is_full = !self.is_full;
            if self.is_full {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.taken += 1;
            Ok(1)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Slow {
        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Word(String);

    impl Message for Word {
        const NAME: [u8; 6] = *b"wvslow";
        const VERSION: u16 = 1;
        const PROGRAM: &'static str = "test";

        fn kind(&self) -> &'static str {
            "word"
        }
    }

    /// With a pause for each byte, all of them would take ten times as long as the limit.
    #[test]
    fn a_peer_that_takes_byte_by_byte_ends_at_the_limit() {
        let limit = Duration::from_millis(100);
        let count = 10 * limit.as_micros() / PAUSE.as_micros();
        let slow = Slow::default();
        let begun = Connection::<Word, _>::begin(slow, "here".into(), Role::Client, PROMPT);
        let mut connection = begun.unwrap().send_limit(limit);
        let error = connection.send(Word("x".repeat(count as usize))).unwrap_err();
        let late =
            matches!(&error, MeetError::Io { cause, .. } if cause.kind() == ErrorKind::TimedOut);
        assert!(late, "{error}");
        assert!(connection.stream.taken > PREAMBLE);
    }
}
