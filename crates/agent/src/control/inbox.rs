//! Notifications that have arrived and have not been taken.

use super::frame::Frame;
use super::link::Link;
use crate::list::Owner;
use crate::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A notification of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification {
    /// Who sent it.
    pub from: Owner,
    /// What it says.
    pub bytes: Vec<u8>,
}

impl Notification {
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
    /// Of each name: how many wait, and the connection by which it is told of room.
    senders: HashMap<Arc<str>, Sender>,
}

#[derive(Default)]
struct Sender {
    waiting: u32,
    link: Weak<Link>,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, Arrived> {
        lock(&self.state)
    }

    /// A peer has connected to send notifications: for how many there is room. Those that are taken from
    /// now on make room on this connection.
    pub(crate) fn connected(&self, from: &Owner, link: &Arc<Link>, window: u32) -> u32 {
        let mut state = self.state();
        state.senders.retain(|_, sender| sender.waiting > 0 || sender.link.strong_count() > 0);
        let sender = state.senders.entry(from.name.clone()).or_default();
        sender.link = Arc::downgrade(link);
        window.saturating_sub(sender.waiting)
    }

    /// Whether there is room: a sender that goes by its credits always finds some.
    pub(crate) fn push(&self, notification: Notification, window: u32) -> bool {
        let mut state = self.state();
        let sender = state.senders.entry(notification.from.name.clone()).or_default();
        if sender.waiting >= window {
            return false;
        }
        sender.waiting += 1;
        state.all.push_back(notification);
        drop(state);
        self.news.notify_all();
        true
    }

    /// Takes the first that fits, and tells its sender that there is room.
    fn take(state: &mut Arrived, fits: &impl Fn(&Notification) -> bool) -> Option<Notification> {
        let at = state.all.iter().position(fits)?;
        let taken = state.all.remove(at)?;
        if let Some(sender) = state.senders.get_mut(&taken.from.name) {
            sender.waiting -= 1;
            if let Some(link) = sender.link.upgrade() {
                link.send(&Frame::Credit { count: 1 });
            }
        }
        Some(taken)
    }

    pub(crate) fn take_first(&self, fits: impl Fn(&Notification) -> bool) -> Option<Notification> {
        Self::take(&mut self.state(), &fits)
    }

    /// As [`Inbox::take_first`], and waits for it.
    pub(crate) fn wait_first(
        &self,
        timeout: Duration,
        fits: impl Fn(&Notification) -> bool,
    ) -> Option<Notification> {
        let start = Instant::now();
        let mut state = self.state();
        loop {
            if let Some(taken) = Self::take(&mut state, &fits) {
                return Some(taken);
            }
            let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero())?;
            let waited = self.news.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
