//! Streams of messages with back-pressure, over any path.
//!
//! ```text
//! sender                                         receiver
//! staging ──── WRITE by the best path ─────────▶ ring of slots in registered memory
//!         ──── Filled, after its data ─────────▶ account ─▶ recv ─▶ Message ─▶ dropped
//!         ◀─── Room, in quarters of the ring ───    ▲────── slot given back ──────┘
//! ```
//!
//! Data goes by a path of the agents, news by the control connection between them. The receiver says
//! how far the sender may go, so a receiver that takes nothing stops the sender, and neither end
//! holds more than its slots.

mod account;
mod receiver;
mod sender;

pub use receiver::{Message, StreamReceiver};
pub use sender::{StreamSender, StreamStats};

pub(crate) use receiver::Offered;

use crate::lock;
use crate::{Agent, AgentError, Memory};
use account::{Account, Next};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Slots of a ring at most.
const MOST_SLOTS: u32 = 65536;

/// The ring of a stream, which belongs to its receiver.
#[derive(Debug)]
pub struct StreamConfig {
    slots: u32,
    slot_bytes: u64,
    memory: Option<Memory>,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { slots: 16, slot_bytes: 1 << 20, memory: None }
    }
}

impl StreamConfig {
    /// Messages that the ring holds, 1 to 65536; 16 by default.
    #[must_use]
    pub fn slots(self, slots: u32) -> Self {
        Self { slots, ..self }
    }

    /// Bytes of the longest message; 1 MiB by default.
    #[must_use]
    pub fn slot_bytes(self, bytes: u64) -> Self {
        Self { slot_bytes: bytes, ..self }
    }

    /// The memory of the ring, at least the bytes of all slots. By default it is allocated as by
    /// [`Agent::alloc`].
    #[must_use]
    pub fn memory(self, memory: impl Into<Memory>) -> Self {
        Self { memory: Some(memory.into()), ..self }
    }

    /// Bytes of all slots.
    fn bytes(&self) -> Result<u64, AgentError> {
        let wrong = |field, value: u64, expected| AgentError::Config {
            field,
            value: value.to_string(),
            expected,
        };
        if !(1..=MOST_SLOTS).contains(&self.slots) {
            return Err(wrong("slots", self.slots.into(), "1 to 65536"));
        }
        let bytes = self.slot_bytes.checked_mul(self.slots.into()).filter(|bytes| *bytes > 0);
        let expected = "at least 1 byte, and less than 2^64 for all slots";
        bytes.ok_or_else(|| wrong("slot_bytes", self.slot_bytes, expected))
    }
}

/// News of a stream, as they travel by the control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event<'a> {
    /// Sender: a message is in its slot.
    Filled { number: u64, len: u64 },
    /// Sender: there are so many messages in all.
    End { count: u64 },
    /// Receiver: messages below this number may be sent.
    Room { limit: u64 },
    /// Receiver: all messages are there.
    Ended,
    /// Sender: the offer came too late, and is not taken up.
    NotTaken,
    /// Either: it does not go on.
    GivenUp { why: Cow<'a, str> },
}

/// One end of a stream, as its connection knows it.
pub(crate) trait End: Send + Sync {
    /// An error says which rule the peer has broken.
    fn event(&self, event: Event<'_>) -> Result<(), String>;
    /// The connection is of no use any more.
    fn lose(&self, why: &AgentError);
}

/// The streams of a connection, by the numbers that their senders give them.
#[derive(Default)]
pub(crate) struct Streams {
    next: AtomicU64,
    ends: Mutex<HashMap<u64, Weak<dyn End>>>,
}

/// What a sender asks for.
#[derive(Serialize, Deserialize)]
struct Wish<'a> {
    /// The number that the stream gets.
    id: u64,
    name: Cow<'a, str>,
}

/// What it is told of the ring, if there is a stream of this name.
#[derive(Serialize, Deserialize)]
struct Offer {
    slots: u32,
    slot_bytes: u64,
    /// The ring's number among the receiver's memory.
    memory: u32,
    /// Metadata of the ring.
    metadata: Vec<u8>,
}

impl Streams {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, id: u64, end: &Arc<impl End + 'static>) {
        let end: Arc<dyn End> = end.clone();
        lock(&self.ends).insert(id, Arc::downgrade(&end));
    }

    pub(crate) fn remove(&self, id: u64) {
        lock(&self.ends).remove(&id);
    }

    /// News of a stream that has ended here are of no interest.
    pub(crate) fn event(&self, id: u64, event: Event<'_>) -> Result<(), String> {
        let end = lock(&self.ends).get(&id).and_then(Weak::upgrade);
        end.map_or(Ok(()), |end| end.event(event).map_err(|why| format!("stream {id}: {why}")))
    }

    pub(crate) fn lose(&self, why: &AgentError) {
        let ends: Vec<_> = lock(&self.ends).drain().filter_map(|(_, end)| end.upgrade()).collect();
        ends.iter().for_each(|end| end.lose(why));
    }
}

/// Gives `data` to all that reads what the other end of a stream says: as the messages that open
/// one, and as news from a sender to the account of a ring, whose size `size` says.
pub(crate) fn any_bytes(size: u8, data: &[u8]) {
    let _ = postcard::from_bytes::<Wish<'_>>(data);
    let _ = postcard::from_bytes::<Option<Offer>>(data);
    let slots = 1 + u64::from(size % 32);
    let mut account = Account::new(slots, 100);
    let mut taken = 0;
    for news in data.chunks_exact(3) {
        let number = taken + u64::from(news[1] >> 2);
        let _ = match news[1] & 3 {
            0 | 1 => account.filled(number, news[2].into()),
            2 => account.filled(number.wrapping_sub(slots), u64::MAX / 2 + u64::from(news[2])),
            _ => account.end(number),
        };
        if news[0] & 1 == 1
            && let Next::Message { number, len } = account.take()
        {
            assert!(number == taken && len <= 100);
            taken += 1;
            if news[0] & 2 == 2 {
                account.give_back(number);
            }
        }
        let limit = account.raise();
        assert!(limit.is_none_or(|limit| limit <= taken + slots));
    }
}

/// Ends a stream from another thread.
#[derive(Clone)]
pub struct StreamStop(Arc<dyn Stop>);

trait Stop: Send + Sync {
    fn stop(&self);
}

impl StreamStop {
    /// Calls on the stream fail with [`AgentError::Cancelled`], also those that wait; the other end
    /// is told. Of a stream that is over nothing changes.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl fmt::Debug for StreamStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamStop")
    }
}

impl Agent {
    /// Offers a stream: the next [`Agent::stream_to`] of its name, by any peer, becomes its sender.
    ///
    /// # Errors
    /// A setting is of no use, the name is taken by a stream without a sender, or memory cannot be
    /// had.
    pub fn stream(&self, name: &str, config: StreamConfig) -> Result<StreamReceiver, AgentError> {
        StreamReceiver::new(self, name, config)
    }

    /// Opens a peer's stream, and waits until the peer offers it.
    ///
    /// # Errors
    /// It does not in time; the peer is unknown or lost; no path leads to its ring.
    pub fn stream_to(
        &self,
        peer: &str,
        name: &str,
        timeout: Duration,
    ) -> Result<StreamSender, AgentError> {
        StreamSender::new(self, peer, name, timeout)
    }
}
