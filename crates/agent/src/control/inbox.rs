//! Notifications that have arrived and have not been taken.

use super::frame::Frame;
use super::link::{Link, LinkId};
use crate::AgentError;
use crate::deadline::Deadline;
use crate::lock;
use crate::names::Owner;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Bytes of memory for waiting notifications, of all senders together. Half of it is for senders with no
/// other waiting notification, so that a sender whose notifications are not taken leaves room for the
/// others.
pub(crate) const MOST_WAITING: usize = 512 << 20;
/// Memory of one notification beside its payload, about.
const BESIDE: usize = 512;

/// The reason why a notification is declined.
pub(super) const FULL: &str = "its inbox is full: too many notifications wait to be taken";

/// A notification of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification {
    /// Its sender.
    pub from: Owner,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Notification {
    /// Memory that it takes, about.
    fn weight(&self) -> usize {
        self.bytes.len() + BESIDE
    }

    pub(crate) fn is(&self, peer: &str, tag: &[u8]) -> bool {
        &*self.from.name == peer && self.bytes == tag
    }
}

#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<Arrived>,
    news: Condvar,
}

#[derive(Default)]
struct Arrived {
    all: VecDeque<Notification>,
    /// Memory that they take, about.
    weight: usize,
    /// The credits of each sender, by generation of the agent.
    senders: HashMap<Owner, Sender>,
}

/// `waiting`, `owed` and all `credits` together never exceed the window.
#[derive(Default)]
struct Sender {
    /// Notifications that wait to be taken.
    waiting: u32,
    /// The window of the newest connection.
    window: u32,
    /// Room that the sender has not been told of, since it has enough.
    owed: u32,
    /// Its connections, the newest last.
    links: Vec<Credited>,
}

struct Credited {
    link: Arc<Link>,
    /// Notifications that may still arrive on it.
    credits: u32,
}

impl Sender {
    /// The memory of all notifications up to which another one of this sender is taken.
    fn most(&self) -> usize {
        if self.waiting == 0 { MOST_WAITING } else { MOST_WAITING / 2 }
    }

    /// Room for so many has become free.
    fn give(&mut self, count: u32) {
        self.owed += count;
        self.tell();
    }

    /// Grants what is owed to the newest connection, once that has less than half of the window: one
    /// message for many notifications that are taken, and at once for a sender that waits.
    fn tell(&mut self) {
        // Without a connection the next one counts the room anew.
        let Some(newest) = self.links.last_mut() else { return self.owed = 0 };
        if self.owed > 0 && newest.credits < self.window.div_ceil(2) {
            let count = std::mem::take(&mut self.owed);
            newest.credits += count;
            newest.link.send(&Frame::Credit { count });
        }
    }
}

/// The fate of a notification that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Taken,
    /// Those of all senders are too many. The sender keeps its credit.
    Full,
    /// The sender has no credit for it.
    Beyond,
}

impl Inbox {
    /// Counts `bytes` as waiting for other senders.
    #[cfg(test)]
    pub(crate) fn pretend(&self, bytes: usize) {
        self.state().weight = bytes;
    }

    fn state(&self) -> MutexGuard<'_, Arrived> {
        lock(&self.state)
    }

    /// A peer has connected to send notifications; returns the credits that it gets. Notifications
    /// that may still arrive by its earlier connections take room until those end. Notifications that are taken from now on make
    /// room on this connection.
    pub(crate) fn connected(&self, from: &Owner, link: &Arc<Link>, window: u32) -> u32 {
        let mut state = self.state();
        let sender = state.senders.entry(from.clone()).or_default();
        let earlier = sender.links.iter().fold(0, |sum: u32, one| sum.saturating_add(one.credits));
        let credits = window.saturating_sub(sender.waiting.saturating_add(earlier));
        (sender.window, sender.owed) = (window, 0);
        sender.links.push(Credited { link: link.clone(), credits });
        credits
    }

    /// This connection has ended.
    pub(crate) fn disconnected(&self, from: &Owner, link: LinkId) {
        let mut state = self.state();
        let Some(sender) = state.senders.get_mut(from) else { return };
        if let Some(at) = sender.links.iter().position(|one| one.link.id == link) {
            let freed = sender.links.remove(at).credits;
            sender.give(freed);
        }
        if sender.links.is_empty() && sender.waiting == 0 {
            state.senders.remove(from);
        }
    }

    pub(crate) fn push(&self, notification: Notification, link: LinkId) -> Put {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(sender) = state.senders.get_mut(&notification.from) else { return Put::Beyond };
        let most = sender.most();
        let its = sender.links.iter_mut().find(|one| one.link.id == link);
        let Some(its) = its.filter(|one| one.credits > 0) else { return Put::Beyond };
        let weight = state.weight.saturating_add(notification.weight());
        if weight > most {
            return Put::Full;
        }
        its.credits -= 1;
        sender.waiting += 1;
        sender.tell();
        self.keep(guard, notification);
        Put::Taken
    }

    /// Of this agent to itself, which needs no credit; whether there is memory for it.
    pub(super) fn push_own(&self, notification: Notification) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        let weight = state.weight.saturating_add(notification.weight());
        let waiting = state.senders.get(&notification.from);
        if weight > waiting.map_or(MOST_WAITING, Sender::most) {
            return false;
        }
        state.senders.entry(notification.from.clone()).or_default().waiting += 1;
        self.keep(guard, notification);
        true
    }

    /// Keeps a notification, of whose sender one more waits, and wakes those who wait for one.
    fn keep(&self, mut state: MutexGuard<'_, Arrived>, notification: Notification) {
        state.weight = state.weight.saturating_add(notification.weight());
        state.all.push_back(notification);
        drop(state);
        self.news.notify_all();
    }

    /// Takes the first that fits, and gives its sender a credit.
    fn take(state: &mut Arrived, fits: &impl Fn(&Notification) -> bool) -> Option<Notification> {
        let at = state.all.iter().position(fits)?;
        let taken = state.all.remove(at)?;
        state.weight -= taken.weight();
        if let Some(sender) = state.senders.get_mut(&taken.from) {
            sender.waiting -= 1;
            sender.give(1);
            if sender.links.is_empty() && sender.waiting == 0 {
                state.senders.remove(&taken.from);
            }
        }
        Some(taken)
    }

    pub(crate) fn take_first(&self, fits: impl Fn(&Notification) -> bool) -> Option<Notification> {
        Self::take(&mut self.state(), &fits)
    }

    /// How many wait to be taken.
    pub(crate) fn waiting(&self) -> u64 {
        self.state().all.len() as u64
    }

    /// As [`Inbox::take_first`], and waits for it.
    pub(crate) fn wait_first(
        &self,
        deadline: &Deadline,
        what: impl Fn() -> String,
        fits: impl Fn(&Notification) -> bool,
    ) -> Result<Notification, AgentError> {
        let mut state = self.state();
        loop {
            if let Some(taken) = Self::take(&mut state, &fits) {
                return Ok(taken);
            }
            state = deadline.wait(&self.news, state, &what)?;
        }
    }
}
