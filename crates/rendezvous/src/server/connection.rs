//! One peer of the server: bytes in, requests out; replies in, bytes out.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;

use super::stats::Cause;
use crate::Limits;
use crate::protocol::{Decoder, MAGIC, ProtocolError, Reply, Request, refused};

/// Input of a connection for the engine.
pub(super) enum Input {
    Request(Request),
    /// Nothing until the next event.
    Nothing,
    /// The peer ended the connection between two messages.
    Closed,
}

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    decoder: Decoder,
    /// Bytes that have arrived and are not decoded: `chunk[taken..]`.
    chunk: Vec<u8>,
    taken: usize,
    out: Vec<u8>,
    written: usize,
    validated: bool,
    /// Whether the other end is our client, which reads why it is sent away.
    ours: bool,
    /// When the message at hand began to arrive.
    receiving: Option<Instant>,
    /// When the replies at hand began to leave.
    sending: Option<Instant>,
}

const CHUNK: usize = 16 << 10;

/// Says to a peer that is not served why.
pub(super) fn turn_away(stream: &mut TcpStream, cause: &Cause) {
    let mut reason = Vec::new();
    refused::emit(&mut reason, &cause.to_string());
    warpverbs_meet::dismiss(stream, &reason);
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, limits: &Limits) -> Connection {
        Connection {
            stream,
            peer,
            decoder: Decoder::new(limits.clone()),
            chunk: Vec::new(),
            taken: 0,
            out: Vec::new(),
            written: 0,
            validated: false,
            ours: false,
            receiving: Some(Instant::now()),
            sending: None,
        }
    }

    /// When it began, unless it has validated itself.
    pub(super) fn stranger_since(&self) -> Option<Instant> {
        self.receiving.filter(|_| !self.validated)
    }

    /// Bytes held for this connection.
    pub(super) fn held(&self) -> usize {
        self.decoder.held() + self.chunk.len() + self.out.len()
    }

    /// The next request, unless a reply is still to leave: a peer that does not read its replies
    /// gets no more of them.
    pub(super) fn next(&mut self) -> Result<Input, Cause> {
        loop {
            if !self.out.is_empty() {
                return Ok(Input::Nothing);
            }
            let mut rest = &self.chunk[self.taken..];
            let request = self.decoder.feed(&mut rest)?;
            self.taken = self.chunk.len() - rest.len();
            if let Some(request) = request {
                self.receiving = None;
                if self.admit(&request)? {
                    return Ok(Input::Request(request));
                }
                continue;
            }
            if self.decoder.held() > 0 {
                self.receiving.get_or_insert_with(Instant::now);
            }
            self.chunk.resize(CHUNK, 0);
            self.taken = 0;
            let read = self.stream.read(&mut self.chunk);
            self.chunk.truncate(*read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return self.ended(),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Nothing is held for a connection that is idle.
                    self.chunk = Vec::new();
                    return Ok(Input::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Cause::Io(error.kind())),
            }
        }
    }

    /// Whether the request is for the store; false for the validation that comes first.
    fn admit(&mut self, request: &Request) -> Result<bool, ProtocolError> {
        match (self.validated, request) {
            (false, Request::Validate { magic: MAGIC }) => {
                self.validated = true;
                Ok(false)
            }
            (false, Request::Validate { magic }) => Err(ProtocolError::WrongMagic(*magic)),
            (false, other) => Err(ProtocolError::NotValidated(other.opcode())),
            (true, Request::Validate { .. }) => Err(ProtocolError::ValidatedTwice),
            (true, Request::Ping { nonce }) => {
                self.ours = refused::is_ours(*nonce);
                Ok(true)
            }
            (true, _) => Ok(true),
        }
    }

    fn ended(&self) -> Result<Input, Cause> {
        match self.decoder.held() {
            0 => Ok(Input::Closed),
            have => Err(ProtocolError::Truncated { have }.into()),
        }
    }

    /// Adds a reply to what leaves with the next [`Connection::flush`].
    pub(super) fn reply(&mut self, reply: &Reply) {
        reply.emit(&mut self.out);
        self.sending.get_or_insert_with(Instant::now);
    }

    /// Says why the connection is about to be closed, as far as the peer takes it now.
    pub(super) fn explain(&mut self, cause: &Cause) {
        if self.ours {
            refused::emit(&mut self.out, &cause.to_string());
            // Closed in any case: a client that does not take it sees the connection end.
            let _ = self.flush();
        }
    }

    /// Sends what the peer takes now.
    pub(super) fn flush(&mut self) -> Result<(), Cause> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(Cause::Io(io::ErrorKind::WriteZero)),
                Ok(sent) => self.written += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Cause::Io(error.kind())),
            }
        }
        self.out = Vec::new();
        self.written = 0;
        if self.sending.take().is_some() {
            // While a reply waited to leave, this end did not read.
            self.receiving = self.receiving.map(|_| Instant::now());
        }
        Ok(())
    }

    /// Whether the peer has taken too long.
    pub(super) fn check_time(&self, now: Instant, limits: &Limits) -> Result<(), Cause> {
        let limit = limits.message_time;
        let late = |since: Option<Instant>| since.is_some_and(|since| now - since > limit);
        if late(self.sending) {
            return Err(Cause::SlowToRead { limit });
        }
        if self.sending.is_none() && late(self.receiving) {
            return Err(Cause::SlowToSend { limit });
        }
        Ok(())
    }
}
