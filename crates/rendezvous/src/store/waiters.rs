//! Who waits for which keys.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::ClientId;

/// Order of arrival; the one that has waited longest is woken first.
type Ticket = u64;

#[derive(Debug)]
struct Waiter {
    client: ClientId,
    missing: usize,
    keys: Vec<Arc<[u8]>>,
}

/// The waits and barriers of all clients, at most one for each.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    next: Ticket,
    by_key: HashMap<Arc<[u8]>, BTreeSet<Ticket>>,
    waiters: HashMap<Ticket, Waiter>,
    tickets: HashMap<ClientId, Ticket>,
    bytes: usize,
}

/// What one registration is taken to cost, besides the bytes of a key that nobody else waits for.
const REGISTRATION: usize = 48;

impl Waiters {
    /// An estimate of the memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn waits(&self, client: ClientId) -> bool {
        self.tickets.contains_key(&client)
    }

    /// `keys` are distinct, at least one, and `client` does not wait yet.
    pub(super) fn register(&mut self, client: ClientId, keys: Vec<Vec<u8>>) {
        let ticket = self.next;
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
            self.by_key.entry(shared.clone()).or_default().insert(ticket);
            waiter.keys.push(shared);
        }
        self.waiters.insert(ticket, waiter);
        self.tickets.insert(client, ticket);
    }

    /// `key` is there: everybody whose last missing key it was, in order of arrival.
    pub(super) fn wake_all(&mut self, key: &[u8]) -> Vec<ClientId> {
        let tickets = self.by_key.get(key).cloned().unwrap_or_default();
        tickets.into_iter().filter_map(|ticket| self.arrive(ticket, key)).collect()
    }

    /// `key` has one thing to take: the first whose last missing key it was.
    pub(super) fn wake_one(&mut self, key: &[u8]) -> Option<ClientId> {
        let tickets = self.by_key.get(key).cloned().unwrap_or_default();
        tickets.into_iter().find_map(|ticket| self.arrive(ticket, key))
    }

    /// Forgets the wait of `client`, if there is one.
    pub(super) fn cancel(&mut self, client: ClientId) {
        let Some(ticket) = self.tickets.remove(&client) else { return };
        let Some(waiter) = self.waiters.remove(&ticket) else { return };
        for key in &waiter.keys {
            self.unlink(ticket, key);
        }
    }

    fn arrive(&mut self, ticket: Ticket, key: &[u8]) -> Option<ClientId> {
        self.unlink(ticket, key);
        let waiter = self.waiters.get_mut(&ticket)?;
        waiter.missing -= 1;
        if waiter.missing > 0 {
            return None;
        }
        let waiter = self.waiters.remove(&ticket)?;
        self.tickets.remove(&waiter.client);
        Some(waiter.client)
    }

    /// Removes one registration; does nothing if it has gone.
    fn unlink(&mut self, ticket: Ticket, key: &[u8]) {
        let Some(tickets) = self.by_key.get_mut(key) else { return };
        if tickets.remove(&ticket) {
            self.bytes -= REGISTRATION;
        }
        if tickets.is_empty() {
            self.by_key.remove(key);
            self.bytes -= key.len();
        }
    }
}
