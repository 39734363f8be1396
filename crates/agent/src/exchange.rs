//! A key-value store by which metadata and lists travel.

use crate::lock;
use crate::{Agent, AgentError, BlockList};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use warpverbs_rendezvous::{Client, Deadline};

/// A key-value store that other processes can reach: the TCPStore of PyTorch (a [`Client`]), a map of
/// this process ([`LocalExchange`]), or anything else, such as etcd.
pub trait Exchange {
    /// Stores bytes under a key, in place of those that were there.
    ///
    /// # Errors
    /// The reason, as text for people.
    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), String>;

    /// The bytes under a key; waits until there are some.
    ///
    /// # Errors
    /// The reason, as text for people, a timeout included.
    fn get(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, String>;
}

impl Exchange for Client {
    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), String> {
        self.set(key, bytes).map_err(|error| error.to_string())
    }

    fn get(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, String> {
        self.wait(&[key], Deadline::after(timeout)).map_err(|error| error.to_string())?;
        Client::get(self, key).map_err(|error| error.to_string())
    }
}

/// An exchange among agents of one process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LocalExchange(Arc<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    bytes: Mutex<HashMap<String, Vec<u8>>>,
    news: Condvar,
}

impl Exchange for LocalExchange {
    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), String> {
        let mut map = lock(&self.0.bytes);
        map.insert(key.to_owned(), bytes.to_vec());
        self.0.news.notify_all();
        Ok(())
    }

    fn get(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, String> {
        let start = Instant::now();
        let mut map = lock(&self.0.bytes);
        loop {
            if let Some(bytes) = map.get(key) {
                return Ok(bytes.clone());
            }
            let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
            let left = left.ok_or_else(|| format!("nothing after {timeout:?}"))?;
            map = self.0.news.wait_timeout(map, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn failed(what: String) -> impl FnOnce(String) -> AgentError {
    move |cause| AgentError::Exchange { what, cause }
}

impl Agent {
    /// Stores this agent's metadata under a key.
    ///
    /// # Errors
    /// The exchange's own error.
    pub fn publish_metadata(
        &self,
        exchange: &mut dyn Exchange,
        key: &str,
    ) -> Result<(), AgentError> {
        let put = exchange.put(key, &self.metadata()?);
        put.map_err(failed(format!("publishing metadata as {key:?}")))
    }

    /// Waits for metadata under a key, loads it, and returns the peer's name, all within `timeout`.
    ///
    /// # Errors
    /// The exchange failed, or the bytes are not a peer's metadata; otherwise as
    /// [`Agent::load_metadata`].
    pub fn retrieve_metadata(
        &self,
        exchange: &mut dyn Exchange,
        key: &str,
        timeout: Duration,
    ) -> Result<String, AgentError> {
        let deadline = crate::deadline::Deadline::after(timeout);
        let got = exchange.get(key, timeout);
        let got = got.map_err(failed(format!("metadata {key:?}")))?;
        self.shared.peers.load(&got, None, &deadline)
    }
}

impl BlockList {
    /// Stores the list under a key.
    ///
    /// # Errors
    /// The exchange's own error.
    pub fn publish(&self, exchange: &mut dyn Exchange, key: &str) -> Result<(), AgentError> {
        let put = exchange.put(key, &self.to_bytes());
        put.map_err(failed(format!("publishing a list as {key:?}")))
    }

    /// Waits for a list under a key.
    ///
    /// # Errors
    /// The exchange failed, or the bytes are not a list.
    pub fn retrieve(
        exchange: &mut dyn Exchange,
        key: &str,
        timeout: Duration,
    ) -> Result<Self, AgentError> {
        let got = exchange.get(key, timeout).map_err(failed(format!("list {key:?}")))?;
        Ok(Self::from_bytes(&got)?)
    }
}
