//! Clients that wait for keys.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::ClientId;

/// Order of arrival, in which waiters are woken.
type WaiterId = u64;

#[derive(Debug)]
struct Waiter {
    client: ClientId,
    missing: usize,
    keys: Vec<Arc<[u8]>>,
}

/// The waits of all clients, at most one for each.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    next: WaiterId,
    by_key: HashMap<Arc<[u8]>, BTreeSet<WaiterId>>,
    waiters: HashMap<WaiterId, Waiter>,
    ids: HashMap<ClientId, WaiterId>,
    bytes: usize,
}

/// Bytes that one registration counts for, beside those of a key without other waiters.
const REGISTRATION: usize = 48;

impl Waiters {
    /// An estimate of the memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn waits(&self, client: ClientId) -> bool {
        self.ids.contains_key(&client)
    }

    /// `keys` are distinct, at least one, and `client` does not wait yet.
    pub(super) fn register(&mut self, client: ClientId, keys: Vec<Vec<u8>>) {
        let id = self.next;
        self.next += 1;
        let mut waiter = Waiter { client, missing: keys.len(), keys: Vec::new() };
        for key in keys {
            let shared = match self.by_key.get_key_value(key.as_slice()) {
                Some((shared, _)) => shared.clone(),
                None => {
                    self.bytes += key.len();
                    Arc::from(key)
                }
            };
            self.bytes += REGISTRATION;
            self.by_key.entry(shared.clone()).or_default().insert(id);
            waiter.keys.push(shared);
        }
        self.waiters.insert(id, waiter);
        self.ids.insert(client, id);
    }

    /// `key` is there: everybody whose last missing key it was, in order of arrival.
    pub(super) fn wake_all(&mut self, key: &[u8]) -> Vec<ClientId> {
        let ids = self.by_key.get(key).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| self.arrive(id, key)).collect()
    }

    /// Forgets the wait of `client`, if there is one.
    pub(super) fn cancel(&mut self, client: ClientId) {
        let Some(id) = self.ids.remove(&client) else { return };
        let Some(waiter) = self.waiters.remove(&id) else { return };
        for key in &waiter.keys {
            self.unlink(id, key);
        }
    }

    fn arrive(&mut self, id: WaiterId, key: &[u8]) -> Option<ClientId> {
        self.unlink(id, key);
        let waiter = self.waiters.get_mut(&id)?;
        waiter.missing -= 1;
        if waiter.missing > 0 {
            return None;
        }
        let waiter = self.waiters.remove(&id)?;
        self.ids.remove(&waiter.client);
        Some(waiter.client)
    }

    /// Removes one registration; does nothing if it has gone.
    fn unlink(&mut self, id: WaiterId, key: &[u8]) {
        let Some(ids) = self.by_key.get_mut(key) else { return };
        if ids.remove(&id) {
            self.bytes -= REGISTRATION;
        }
        if ids.is_empty() {
            self.by_key.remove(key);
            self.bytes -= key.len();
        }
    }
}
