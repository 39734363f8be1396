//! Clients that wait for keys.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::ClientId;

/// A waiter, behind its place in the order of arrival, in which waiters are woken.
type Place = (u64, ClientId);

#[derive(Debug)]
struct Waiter {
    order: u64,
    missing: usize,
    keys: Vec<Arc<[u8]>>,
}

/// The waits of all clients, at most one for each.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    next: u64,
    by_key: HashMap<Arc<[u8]>, BTreeSet<Place>>,
    waiters: HashMap<ClientId, Waiter>,
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
        self.waiters.contains_key(&client)
    }

    /// `keys` are distinct, at least one, and `client` does not wait yet.
    pub(super) fn register(&mut self, client: ClientId, keys: Vec<Vec<u8>>) {
        let order = self.next;
        self.next += 1;
        let mut waiter = Waiter { order, missing: keys.len(), keys: Vec::new() };
        for key in keys {
            let shared = match self.by_key.get_key_value(key.as_slice()) {
                Some((shared, _)) => shared.clone(),
                None => {
                    self.bytes += key.len();
                    Arc::from(key)
                }
            };
            self.bytes += REGISTRATION;
            self.by_key.entry(shared.clone()).or_default().insert((order, client));
            waiter.keys.push(shared);
        }
        self.waiters.insert(client, waiter);
    }

    /// `key` is there: everybody whose last missing key it was, in order of arrival.
    pub(super) fn wake_all(&mut self, key: &[u8]) -> Vec<ClientId> {
        let mut places = self.by_key.get(key).cloned().unwrap_or_default();
        places.retain(|&place| self.arrive(place, key));
        places.into_iter().map(|(_, client)| client).collect()
    }

    /// Forgets the wait of `client`, if there is one.
    pub(super) fn cancel(&mut self, client: ClientId) {
        let Some(waiter) = self.waiters.remove(&client) else { return };
        for key in &waiter.keys {
            self.unlink((waiter.order, client), key);
        }
    }

    /// Whether that was the last key that the waiter missed.
    fn arrive(&mut self, place: Place, key: &[u8]) -> bool {
        self.unlink(place, key);
        let Some(waiter) = self.waiters.get_mut(&place.1) else { return false };
        waiter.missing -= 1;
        let last = waiter.missing == 0;
        if last {
            self.waiters.remove(&place.1);
        }
        last
    }

    /// Removes one registration; does nothing if it has gone.
    fn unlink(&mut self, place: Place, key: &[u8]) {
        let Some(places) = self.by_key.get_mut(key) else { return };
        if places.remove(&place) {
            self.bytes -= REGISTRATION;
        }
        if places.is_empty() {
            self.by_key.remove(key);
            self.bytes -= key.len();
        }
    }
}
