//! The store from the other side: blocking calls over one connection.

mod connect;
mod error;
mod wait;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

pub use connect::ConnectError;
pub use error::ClientError;
pub(crate) use error::Listed;

use crate::protocol::{Field, Opcode, ReplyError, Request, read};
use crate::{Deadline, Limits};
use warpverbs_meet::Timed;

/// PyTorch puts this before every key of its users.
const PREFIX: &str = "/";

/// The key, without [`PREFIX`], at which PyTorch's clients count themselves when they join.
const JOINED: &str = "init/";

/// Most bytes that are read and dropped when a connection is closed.
const DROPPED: u64 = 4096;

/// See [`Client::set_grace`].
const GRACE: Duration = Duration::from_secs(5);

/// A connection to a store, PyTorch's or ours.
///
/// Keys are those of `torch.distributed.TCPStore`: what one side calls `k` is `k` for the other.
/// Calls take no longer than [`Client::timeout`], except those that are given a [`Deadline`].
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    peer: SocketAddr,
    timeout: Duration,
    /// How long a store may take to answer what needs no other rank, once a deadline has passed.
    grace: Duration,
    limits: Limits,
    broken: bool,
}

impl Client {
    /// Connects to the store at `host`, which may begin to listen later than this call, but not
    /// later than `timeout`. The timeout becomes that of the calls.
    pub fn connect(
        host: &str,
        port: u16,
        timeout: Duration,
        limits: Limits,
    ) -> Result<Client, ConnectError> {
        let deadline = Deadline::after(timeout);
        let stream = connect::connect(host, port, deadline)?;
        let peer = stream.peer_addr().map_err(|cause| ConnectError::Unreachable {
            host: host.into(),
            port,
            waited: deadline.waited(),
            attempts: 1,
            cause,
        })?;
        Ok(Client { stream, peer, timeout, grace: GRACE, limits, broken: false })
    }

    /// Another connection to the same address, with the same settings.
    pub(crate) fn again(&self, timeout: Duration) -> Result<Client, ConnectError> {
        let (host, port) = (self.peer.ip().to_string(), self.peer.port());
        let client = Self::connect(&host, port, timeout, self.limits.clone())?;
        Ok(Client { timeout: self.timeout, grace: self.grace, ..client })
    }

    /// The store's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our own end of the connection: the address of the interface that leads to the store.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Changes how long a call may take.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Changes how long the store may take, after the deadline of a wait, to say what is missing.
    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Stores `value`. There is no reply: a refusal shows in the next call.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), ClientError> {
        self.set_raw(&prefixed(key), value)
    }

    /// As [`Client::set`], with the key as it travels.
    pub(crate) fn set_raw(&mut self, key: &str, value: &[u8]) -> Result<(), ClientError> {
        self.tell(&Request::Set { key: key.as_bytes(), value })
    }

    /// Stores `desired` if the value is `expected`, where an empty one stands for no key. Gives the
    /// value that holds afterwards, or `expected` if there is no key and it is not empty.
    pub fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, ClientError> {
        let key = &prefixed(key);
        let limit = self.limits.value;
        let request = Request::CompareSet { key: key.as_bytes(), expected, desired };
        self.ask(&request, |from| read::bytes(from, "value", limit))
    }

    /// The value of `key`; waits until there is one.
    pub fn get(&mut self, key: &str) -> Result<Vec<u8>, ClientError> {
        let deadline = Deadline::after(self.timeout);
        self.wait(&[key], deadline)?;
        let key = &prefixed(key);
        let limit = self.limits.value;
        let request = Request::Get { key: key.as_bytes() };
        self.ask_until(&request, deadline, |from| read::bytes(from, "value", limit))
    }

    /// Adds to the decimal number at `key`, which counts as 0 if there is none. Gives the sum.
    pub fn add(&mut self, key: &str, delta: i64) -> Result<i64, ClientError> {
        self.add_raw(&prefixed(key), delta)
    }

    fn add_raw(&mut self, key: &str, delta: i64) -> Result<i64, ClientError> {
        let request = Request::Add { key: key.as_bytes(), delta };
        self.ask(&request, |from| read::number(from))
    }

    /// Whether all `keys` are there.
    pub fn check(&mut self, keys: &[&str]) -> Result<bool, ClientError> {
        let keys = all_prefixed(keys);
        let request = Request::Check { keys: keys.iter().map(String::as_bytes).collect() };
        self.ask(&request, |from| Ok(read::flag(from)? == 0))
    }

    /// How many keys the store has, PyTorch's own included.
    pub fn num_keys(&mut self) -> Result<i64, ClientError> {
        self.ask(&Request::<&[u8]>::KeyCount, |from| read::number(from))
    }

    /// Removes `key`. Whether it was there.
    pub fn delete_key(&mut self, key: &str) -> Result<bool, ClientError> {
        let key = &prefixed(key);
        let request = Request::Delete { key: key.as_bytes() };
        Ok(self.ask(&request, |from| read::number(from))? > 0)
    }

    /// Adds to the end of a value, or stores it. There is no reply, as with [`Client::set`].
    pub fn append(&mut self, key: &str, value: &[u8]) -> Result<(), ClientError> {
        let key = &prefixed(key);
        self.tell(&Request::Append { key: key.as_bytes(), value })
    }

    /// The values of `keys`, in order; waits until all are there.
    pub fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, ClientError> {
        let deadline = Deadline::after(self.timeout);
        self.wait(keys, deadline)?;
        self.read_until(keys, deadline)
    }

    /// The values of `keys`, which are known to be there. Nothing is waited for but the store, once: a
    /// wait for keys has a deadline, and the store as long again to say what is missing.
    pub(crate) fn read(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, ClientError> {
        self.read_until(keys, Deadline::after(self.timeout))
    }

    fn read_until(
        &mut self,
        keys: &[&str],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        let keys = all_prefixed(keys);
        let (limit, total) = (self.limits.value, self.limits.message);
        let request = Request::MultiGet { keys: keys.iter().map(String::as_bytes).collect() };
        self.ask_until(&request, deadline, |from| {
            read::many(from, "value", keys.len(), limit, total)
        })
    }

    /// Stores several values. There is no reply, as with [`Client::set`].
    pub fn multi_set(&mut self, pairs: &[(&str, &[u8])]) -> Result<(), ClientError> {
        let keys: Vec<_> = pairs.iter().map(|(key, _)| prefixed(key)).collect();
        let pairs =
            keys.iter().zip(pairs).map(|(key, (_, value))| (key.as_bytes(), *value)).collect();
        self.tell(&Request::MultiSet { pairs })
    }

    /// Counts this process among those that have joined, as PyTorch's clients do unless told not to
    /// wait for workers. Gives how many have.
    pub fn join_workers(&mut self) -> Result<i64, ClientError> {
        self.add_raw(JOINED, 1)
    }

    /// Ends the connection, once the store has taken all that was sent or has gone itself; no call comes
    /// after it. After a call that has failed nothing is waited for: its deadline was the connection's.
    pub fn close(&mut self) -> Result<(), ClientError> {
        let (call, peer, deadline) = (Opcode::Set, self.peer, Deadline::after(self.timeout));
        if self.broken {
            return Err(ClientError::Broken { call, peer });
        }
        self.broken = true;
        // A store closes its end when it has read to the end of ours.
        let ended = self.stream.shutdown(Shutdown::Write).and_then(|()| {
            Timed { stream: &self.stream, deadline }.take(DROPPED).read_to_end(&mut Vec::new())
        });
        match ended.map_err(|error| error.kind()) {
            Err(ErrorKind::TimedOut) => {
                Err(ClientError::Silent { call, peer, waited: deadline.waited() })
            }
            _ => Ok(()),
        }
    }

    /// Sends a request that has no reply.
    fn tell<B: AsRef<[u8]>>(&mut self, request: &Request<B>) -> Result<(), ClientError> {
        self.ask(request, |_| Ok(()))
    }

    fn ask<B: AsRef<[u8]>, T>(
        &mut self,
        request: &Request<B>,
        reply: impl FnOnce(&mut Timed<'_>) -> Result<T, ReplyError>,
    ) -> Result<T, ClientError> {
        let deadline = Deadline::after(self.timeout);
        self.ask_until(request, deadline, reply)
    }

    fn ask_until<B: AsRef<[u8]>, T>(
        &mut self,
        request: &Request<B>,
        deadline: Deadline,
        reply: impl FnOnce(&mut Timed<'_>) -> Result<T, ReplyError>,
    ) -> Result<T, ClientError> {
        let bytes = self.encode(request)?;
        self.exchange(request.opcode(), &bytes, deadline, reply)
    }

    /// Sends `bytes` and reads what `reply` reads. A failure leaves the two ends out of step.
    fn exchange<T>(
        &mut self,
        call: Opcode,
        bytes: &[u8],
        deadline: Deadline,
        reply: impl FnOnce(&mut Timed<'_>) -> Result<T, ReplyError>,
    ) -> Result<T, ClientError> {
        let peer = self.peer;
        if self.broken {
            return Err(ClientError::Broken { call, peer });
        }
        let mut stream = Timed { stream: &self.stream, deadline };
        let result = match stream.write_all(bytes) {
            Ok(()) => reply(&mut stream),
            // A store that has closed the connection may have said why before.
            Err(error) => Err(read::reason(&mut stream).unwrap_or(error.into())),
        };
        self.broken = result.is_err();
        result.map_err(|cause| ClientError::reply(call, peer, deadline.waited(), cause))
    }

    /// The bytes of a request that is within the bounds.
    fn encode<B: AsRef<[u8]>>(&self, request: &Request<B>) -> Result<Vec<u8>, ClientError> {
        let call = request.opcode();
        let limits = &self.limits;
        let within = |what, size, limit| match size > limit {
            true => Err(ClientError::TooLarge { call, what, size, limit }),
            false => Ok(()),
        };
        for field in request.fields() {
            match field {
                Field::Key(key) => within("key", key.len(), limits.key)?,
                Field::Value(value) => within("value", value.len(), limits.value)?,
                Field::Count(count) => within("number of keys", count, limits.keys_per_message)?,
                Field::Word(_) | Field::Number(_) => {}
            }
        }
        let mut bytes = Vec::new();
        request.emit(&mut bytes);
        within("message", bytes.len(), limits.message)?;
        Ok(bytes)
    }
}

fn prefixed(key: &str) -> String {
    format!("{PREFIX}{key}")
}

fn all_prefixed(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| prefixed(key)).collect()
}
