//! The store itself: requests in, replies out, no IO and no clock.

mod refusal;
mod waiters;
mod wills;

use std::collections::HashMap;

pub use refusal::Refusal;
use waiters::Waiters;
pub(crate) use wills::PREFIX as WILL_PREFIX;
use wills::Wills;

use crate::Limits;
use crate::protocol::{Reply, Request};

/// A connection, as the store's caller numbers them. A number may be used again after
/// [`Store::remove`].
pub type ClientId = usize;

/// Replies, each for the client beside it.
pub type Replies = Vec<(ClientId, Reply)>;

/// Cost that an entry is taken to have besides its bytes.
const ENTRY: usize = 96;

/// Keys, and the clients that wait for them.
#[derive(Debug)]
pub struct Store {
    limits: Limits,
    values: HashMap<Vec<u8>, Vec<u8>>,
    waiters: Waiters,
    wills: Wills,
    bytes: usize,
}

impl Store {
    /// An empty store.
    pub fn new(limits: Limits) -> Store {
        Store {
            limits,
            values: HashMap::new(),
            waiters: Waiters::default(),
            wills: Wills::new(),
            bytes: 0,
        }
    }

    /// An estimate of the memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes + self.waiters.bytes()
    }

    /// Carries out `request`, appending what it causes to be said. After an `Err`, nothing has
    /// changed, except that a multi_set may have stored its first pairs; the caller closes the
    /// connection, since the protocol has no other way to refuse.
    pub fn handle(
        &mut self,
        client: ClientId,
        request: Request,
        replies: &mut Replies,
    ) -> Result<(), Refusal> {
        let reply = match request {
            Request::Validate { .. } => return Ok(()),
            Request::Ping { nonce } => Reply::Nonce(nonce),
            Request::Set { key, value } => {
                return match Self::will_target(&key) {
                    Some(target) => self.leave_will(client, target, value),
                    None => self.set(key, value, replies),
                };
            }
            Request::CompareSet { key, expected, desired } => {
                Reply::Value(self.compare_set(key, expected, desired, replies)?)
            }
            Request::Get { key } => {
                Reply::Value(self.values.get(&key).cloned().unwrap_or_default())
            }
            Request::Add { key, delta } => Reply::Number(self.add(key, delta, replies)?),
            Request::Check { keys } => Reply::Ready(keys.iter().all(|key| self.has(key))),
            Request::Wait { keys } => return self.wait(client, keys, replies),
            Request::KeyCount => Reply::Number(self.values.len() as i64),
            Request::Delete { key } => Reply::Number(self.delete(&key)),
            Request::Append { key, value } => {
                let mut whole = self.values.get(&key).cloned().unwrap_or_default();
                whole.extend_from_slice(&value);
                return self.set(key, whole, replies);
            }
            Request::MultiGet { keys } => Reply::Values(self.multi_get(&keys)?),
            Request::MultiSet { pairs } => {
                return pairs
                    .into_iter()
                    .try_for_each(|(key, value)| self.set(key, value, replies));
            }
            Request::CancelWait => {
                self.waiters.cancel(client);
                Reply::Cancelled
            }
        };
        replies.push((client, reply));
        Ok(())
    }

    /// The connection of `client` has gone.
    pub fn remove(&mut self, client: ClientId, replies: &mut Replies) {
        self.waiters.cancel(client);
        self.carry_out_will(client, replies);
    }

    fn has(&self, key: &[u8]) -> bool {
        self.values.contains_key(key)
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>, replies: &mut Replies) -> Result<(), Refusal> {
        let woken = key.clone();
        self.put(key, value)?;
        self.wake(&woken, replies);
        Ok(())
    }

    /// Stores without waking anybody.
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Refusal> {
        if value.len() > self.limits.value {
            let (size, limit) = (value.len(), self.limits.value);
            return Err(Refusal::ValueTooLong { key: refusal::shown(&key), size, limit });
        }
        match self.values.get_mut(&key) {
            Some(old) => {
                Self::room(
                    &self.limits,
                    self.bytes + self.waiters.bytes() - old.len(),
                    value.len(),
                )?;
                self.bytes = self.bytes - old.len() + value.len();
                *old = value;
            }
            None => {
                self.new_key()?;
                let cost = ENTRY + key.len() + value.len();
                Self::room(&self.limits, self.bytes(), cost)?;
                self.bytes += cost;
                self.values.insert(key, value);
            }
        }
        Ok(())
    }

    fn new_key(&self) -> Result<(), Refusal> {
        let limit = self.limits.keys;
        let full = self.values.len() >= limit;
        if full { Err(Refusal::TooManyKeys { limit }) } else { Ok(()) }
    }

    fn room(limits: &Limits, held: usize, more: usize) -> Result<(), Refusal> {
        let limit = limits.memory;
        if held.saturating_add(more) > limit { Err(Refusal::Full { limit }) } else { Ok(()) }
    }

    fn wake(&mut self, key: &[u8], replies: &mut Replies) {
        let woken = self.waiters.wake_all(key);
        replies.extend(woken.into_iter().map(|client| (client, Reply::Arrived)));
    }

    fn compare_set(
        &mut self,
        key: Vec<u8>,
        expected: Vec<u8>,
        desired: Vec<u8>,
        replies: &mut Replies,
    ) -> Result<Vec<u8>, Refusal> {
        match self.values.get(&key) {
            Some(present) if *present != expected => Ok(present.clone()),
            // PyTorch's servers answer `expected` here, as if it had been stored.
            None if !expected.is_empty() => Ok(expected),
            _ => {
                self.set(key, desired.clone(), replies)?;
                Ok(desired)
            }
        }
    }

    /// The number at `key`, 0 where there is none, plus `delta`.
    fn sum(&self, key: &[u8], delta: i64) -> Result<i64, Refusal> {
        let Some(value) = self.values.get(key) else { return Ok(delta) };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
        let number = number.ok_or_else(|| Refusal::NotANumber { key: refusal::shown(key) })?;
        number.checked_add(delta).ok_or_else(|| Refusal::Overflow { key: refusal::shown(key) })
    }

    fn add(&mut self, key: Vec<u8>, delta: i64, replies: &mut Replies) -> Result<i64, Refusal> {
        let sum = self.sum(&key, delta)?;
        self.set(key, sum.to_string().into_bytes(), replies)?;
        Ok(sum)
    }

    fn wait(
        &mut self,
        client: ClientId,
        mut keys: Vec<Vec<u8>>,
        replies: &mut Replies,
    ) -> Result<(), Refusal> {
        keys.retain(|key| !self.has(key));
        keys.sort_unstable();
        keys.dedup();
        self.may_wait(client, keys.len(), keys.iter().map(Vec::len).sum())?;
        if keys.is_empty() {
            replies.push((client, Reply::Arrived));
        } else {
            self.waiters.register(client, keys);
        }
        Ok(())
    }

    fn may_wait(&self, client: ClientId, keys: usize, bytes: usize) -> Result<(), Refusal> {
        if self.waiters.waits(client) {
            return Err(Refusal::WaitsAlready);
        }
        Self::room(&self.limits, self.bytes(), keys * ENTRY + bytes)
    }

    fn delete(&mut self, key: &[u8]) -> i64 {
        let Some(value) = self.values.remove(key) else { return 0 };
        self.bytes -= ENTRY + key.len() + value.len();
        1
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Refusal> {
        let empty = Vec::new();
        let values = || keys.iter().map(|key| self.values.get(key).unwrap_or(&empty));
        self.sendable(values().map(Vec::len))?;
        Ok(values().cloned().collect())
    }

    /// Whether strings of these lengths make a reply within the bound.
    fn sendable(&self, lengths: impl Iterator<Item = usize>) -> Result<(), Refusal> {
        let (size, limit) = (lengths.map(|len| len + 8).sum::<usize>(), self.limits.message);
        if size > limit { Err(Refusal::ReplyTooLong { size, limit }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
