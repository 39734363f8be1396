//! Streams of messages with back-pressure, over any path.
//!
//! ```text
//! sender                                         receiver
//! staging ──── WRITE by the best path ─────────▶ ring of slots in registered memory
//!         ──── Filled, after its data ─────────▶ account ─▶ recv ─▶ Message ─▶ dropped
//!         ◀─── Room, in quarters of the ring ───    ▲────── slot given back ──────┘
//! ```
//!
//! Data moves on a path of the agents, events on the control connection between them. The receiver grants
//! slots to the sender, so a receiver that takes nothing stops the sender, and neither end holds more
//! than its slots.

mod account;
mod receiver;
mod sender;

pub use receiver::{Message, StreamReceiver};
pub use sender::{StreamSender, StreamStats};

pub(crate) use receiver::Offered;

use crate::AgentError;
use crate::control::{End, Event, Link};
use crate::deadline::Deadline;
use crate::memories::Registration;
use crate::memory::Memory;
use crate::names::{Owner, PathKind};
use crate::plan::list::BlockList;
use crate::remote_memory::RemoteMemory;
use crate::transfer::Transfer;
use account::{Account, Next};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Slots of a ring at most.
const MOST_SLOTS: u32 = 65536;

/// The ring of a stream, which belongs to its receiver.
#[derive(Debug)]
pub struct StreamConfig {
    slots: u32,
    slot_bytes: u64,
    pub(crate) memory: Option<Memory>,
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
    /// [`Agent::alloc`](crate::Agent::alloc).
    #[must_use]
    pub fn memory(self, memory: impl Into<Memory>) -> Self {
        Self { memory: Some(memory.into()), ..self }
    }

    /// Bytes of all slots.
    pub(crate) fn bytes(&self) -> Result<u64, AgentError> {
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

/// The agent as the sending end of a stream needs it.
pub(crate) trait Sending: Send + Sync {
    /// A peer, and the connection to it.
    fn link_to(&self, peer: &str, deadline: &Deadline) -> Result<(Owner, Arc<Link>), AgentError>;
    /// Memory of a peer, from the metadata of it that the peer has given.
    fn ring(
        &self,
        peer: &Owner,
        metadata_and_id: (&[u8], u32),
        deadline: &Deadline,
    ) -> Result<RemoteMemory, AgentError>;
    /// Host memory in which messages wait.
    fn stage(&self, bytes: usize) -> Result<Registration, AgentError>;
    /// By which path memory here reaches that of a peer.
    fn path(
        &self,
        from: &Registration,
        to: &RemoteMemory,
        deadline: &Deadline,
    ) -> Result<PathKind, AgentError>;
    /// A transfer that writes blocks to a peer's memory.
    fn write(&self, from: &BlockList, to: &BlockList) -> Result<Transfer, AgentError>;
}

/// A sender's request to open a stream.
#[derive(Serialize, Deserialize)]
struct Wish<'a> {
    /// The number of the stream on its connection.
    id: u64,
    name: Cow<'a, str>,
}

/// The answer to it: the ring of the stream.
#[derive(Serialize, Deserialize)]
struct Offer {
    slots: u32,
    slot_bytes: u64,
    /// The ring's number among the receiver's memory.
    memory: u32,
    /// Metadata of the ring.
    metadata: Vec<u8>,
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
    /// Calls on the stream fail with [`AgentError::Cancelled`], also those that wait; the other end is
    /// informed. A stream that is over does not change.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl fmt::Debug for StreamStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamStop")
    }
}
