//! One end of a link: what is posted, what completes.

use super::agreed::{Agreed, MOST_EAGER, MOST_NOTIFICATION, OVERHEAD};
use super::error::{Goodbye, PeerError, PostError, Refusal};
use super::header::{Header, Kind};
use super::incoming::{Incoming, Inlet, Target, refusal_of};
use super::outgoing::Outlet;
use super::sequence::Sequence;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};

/// What an access to a region does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Reads its bytes for the peer.
    Read,
    /// Writes bytes of the peer.
    Write,
}

/// What happened. Numbers are those that posting returned; each kind of operation counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message was handed to the sockets: its memory may be used again.
    Sent(u64),
    /// A message is in the memory of its receive.
    Received {
        /// Number of the receive.
        id: u64,
        /// Bytes.
        len: u64,
    },
    /// A message is in its buffer and its receive is posted. Copy it, then call
    /// [`Protocol::delivered`].
    Deliver {
        /// Number of the receive and of the buffer.
        id: u64,
        /// Bytes.
        len: u64,
    },
    /// A message is longer than its receive. Its bytes were discarded.
    TooLong {
        /// Number of the receive.
        id: u64,
        /// Bytes of the message.
        len: u64,
    },
    /// A received message could not be brought into its memory.
    Misplaced(u64),
    /// A write is in the peer's memory.
    Written(u64),
    /// A write was refused by the peer.
    WriteRefused(u64, Refusal),
    /// A read is in the memory of this end.
    Read(u64),
    /// A read was refused by the peer, or its bytes could not be stored here.
    ReadRefused(u64, Refusal),
    /// A notification was handed to the sockets.
    Notified(u64),
    /// A notification is in its buffer. Take it out, then call [`Protocol::consumed`].
    Notification {
        /// Number of the buffer.
        id: u64,
        /// Bytes.
        len: u64,
    },
    /// The peer ended the link.
    Goodbye(Goodbye),
}

/// One end of a link, without sockets, clock or memory.
///
/// * Received bytes: [`Protocol::feed`] takes headers; [`Protocol::due`] says where payload
///   belongs; [`Protocol::taken`] and [`Protocol::placed`] report what became of it.
/// * Bytes to send: [`Protocol::next_frame`], which [`Protocol::sent`] completes.
/// * [`Protocol::poll_event`] says what is complete.
///
/// After an error of [`Protocol::feed`] or [`Protocol::ended`], the only call that makes sense
/// is [`Protocol::abort`].
#[derive(Debug)]
pub struct Protocol {
    pub(super) agreed: Agreed,
    pub(super) events: VecDeque<Event>,
    // Receiving.
    pub(super) inlets: Vec<Inlet>,
    pub(super) incoming: FxHashMap<(Kind, u64), Incoming>,
    /// Entries of `incoming` of which bytes are missing.
    pub(super) incomplete: usize,
    pub(super) receives: FxHashMap<u64, u64>,
    pub(super) receives_posted: u64,
    pub(super) messages_in: Sequence,
    pub(super) writes_in: Sequence,
    pub(super) reads_in: Sequence,
    pub(super) replies: FxHashSet<u64>,
    pub(super) next_notification_in: u64,
    /// Notifications that wait for an earlier one or for writes, with the number of writes.
    pub(super) held: BTreeMap<u64, u64>,
    pub(super) charged_in: u64,
    pub(super) credit_out: u64,
    // Sending.
    pub(super) out: Outlet,
    pub(super) writes: Sequence,
    pub(super) reads: Sequence,
}

impl Protocol {
    /// A link after its handshake.
    pub fn new(agreed: Agreed) -> Self {
        Self {
            agreed,
            events: VecDeque::new(),
            inlets: (0..agreed.sockets).map(|_| Inlet::default()).collect(),
            incoming: FxHashMap::default(),
            incomplete: 0,
            receives: FxHashMap::default(),
            receives_posted: 0,
            messages_in: Sequence::default(),
            writes_in: Sequence::default(),
            reads_in: Sequence::default(),
            replies: FxHashSet::default(),
            next_notification_in: 0,
            held: BTreeMap::new(),
            charged_in: 0,
            credit_out: 0,
            out: Outlet::new(&agreed),
            writes: Sequence::default(),
            reads: Sequence::default(),
        }
    }

    /// What both ends agreed on.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Posts a receive of up to `capacity` bytes, and returns its number: receive `n` takes the
    /// peer's message `n`.
    pub fn post_receive(&mut self, capacity: u64) -> u64 {
        let id = self.receives_posted;
        self.receives_posted += 1;
        self.receives.insert(id, capacity);
        // A sender may wait for a receive before it sends more than fits the window.
        self.out.posted(self.receives_posted, capacity > MOST_EAGER);
        if self.incoming.get(&(Kind::Message, id)).is_some_and(Incoming::is_complete) {
            self.message_completed(id);
        }
        id
    }

    /// Posts a message of `len` bytes and returns its number.
    ///
    /// # Errors
    /// The link is closed.
    pub fn post_send(&mut self, len: u64) -> Result<u64, PostError> {
        self.out.check_open()?;
        Ok(self.out.post_message(len))
    }

    /// Posts a write of `len` bytes to the peer's memory and returns its number.
    ///
    /// # Errors
    /// The link is closed, too many writes are under way, the range wraps.
    pub fn post_write(&mut self, len: u64, key: u32, addr: u64) -> Result<u64, PostError> {
        let id = self.out.next_write;
        self.check_remote(&self.writes, id, len, addr)?;
        self.out.post_write(len, key, addr);
        Ok(id)
    }

    /// Posts a read of `len` bytes of the peer's memory and returns its number.
    ///
    /// # Errors
    /// The link is closed, too many reads are under way, the range wraps.
    pub fn post_read(&mut self, len: u64, key: u32, addr: u64) -> Result<u64, PostError> {
        let id = self.out.next_read;
        self.check_remote(&self.reads, id, len, addr)?;
        let reply = Header { total: len, ..Header::new(Kind::ReadReply) };
        self.incoming.insert((Kind::ReadReply, id), Incoming::new(&reply, Target::Read(id), None));
        self.incomplete += 1;
        self.out.post_read(len, key, addr);
        Ok(id)
    }

    /// Posts a notification, which the peer gets after all writes posted before it are in its
    /// memory, and returns its number.
    ///
    /// # Errors
    /// The link is closed, the notification is too long.
    pub fn post_notification(&mut self, len: u64) -> Result<u64, PostError> {
        self.out.check_open()?;
        if len > MOST_NOTIFICATION {
            return Err(PostError::NotificationTooLong { len, most: MOST_NOTIFICATION });
        }
        Ok(self.out.post_notification(len))
    }

    /// Says that the message in buffer `id` was copied into its receive and the buffer is free;
    /// `misplaced` if that failed.
    pub fn delivered(&mut self, id: u64, misplaced: bool) {
        let Some(incoming) = self.incoming.remove(&(Kind::Message, id)) else { return };
        self.receives.remove(&id);
        self.messages_in.finish(id);
        self.give_credit(incoming.charged);
        self.events.push_back(match misplaced {
            false => Event::Received { id, len: incoming.total },
            true => Event::Misplaced(id),
        });
    }

    /// Says that a notification of `len` bytes was taken out of its buffer.
    pub fn consumed(&mut self, len: u64) {
        self.give_credit(len + OVERHEAD);
    }

    /// Nothing can be posted any more. Once all that was posted is sent, the peer gets a goodbye.
    pub fn close(&mut self) {
        self.out.close(Goodbye::Finished);
    }

    /// Sends nothing more but a goodbye with its reason.
    pub fn abort(&mut self, reason: Goodbye) {
        self.out.abort(reason);
    }

    /// Whether the goodbye was handed to the sockets.
    pub fn is_closed(&self) -> bool {
        self.out.is_closed()
    }

    fn check_remote(
        &self,
        finished: &Sequence,
        id: u64,
        len: u64,
        addr: u64,
    ) -> Result<(), PostError> {
        self.out.check_open()?;
        if addr.checked_add(len).is_none() {
            return Err(PostError::Wraps { addr, len });
        }
        let most = self.agreed.open;
        if id - finished.low() >= u64::from(most) {
            return Err(PostError::TooMany { most });
        }
        Ok(())
    }

    /// All bytes of a transfer from the peer are placed.
    pub(super) fn completed(&mut self, kind: Kind, id: u64) {
        match kind {
            Kind::Message => self.message_completed(id),
            Kind::Write => {
                if let Some(write) = self.incoming.remove(&(kind, id)) {
                    self.writes_in.finish(id);
                    self.out.write_done(id, write.refusal);
                    self.release_notifications();
                }
            }
            Kind::ReadReply => {
                if let Some(read) = self.incoming.remove(&(kind, id)) {
                    self.read_completed(id, read.refusal);
                }
            }
            Kind::Notification => {
                if let Some(notification) = self.incoming.get(&(kind, id)) {
                    self.held.insert(id, notification.after());
                    self.release_notifications();
                }
            }
            _ => {}
        }
    }

    fn message_completed(&mut self, id: u64) {
        let key = (Kind::Message, id);
        let Some(message) = self.incoming.get(&key) else { return };
        let (len, target, refusal) = (message.total, message.target, message.refusal);
        let event = match (target, self.receives.get(&id)) {
            (Target::Buffer(_), None) => return,
            (Target::Buffer(_), Some(&capacity)) if len <= capacity && refusal.is_none() => {
                return self.events.push_back(Event::Deliver { id, len });
            }
            _ if refusal.is_some() => Event::Misplaced(id),
            (Target::Receive(_), _) => Event::Received { id, len },
            _ => Event::TooLong { id, len },
        };
        if let Some(message) = self.incoming.remove(&key) {
            self.give_credit(message.charged);
        }
        self.receives.remove(&id);
        self.messages_in.finish(id);
        self.events.push_back(event);
    }

    /// Hands over, in order, the notifications whose writes are complete.
    fn release_notifications(&mut self) {
        while let Some(&after) = self.held.get(&self.next_notification_in)
            && after <= self.writes_in.low()
        {
            let id = self.next_notification_in;
            self.next_notification_in += 1;
            self.held.remove(&id);
            let len = self.incoming.remove(&(Kind::Notification, id)).map_or(0, |n| n.total);
            self.events.push_back(Event::Notification { id, len });
        }
    }

    fn read_completed(&mut self, id: u64, refusal: Option<Refusal>) {
        self.reads.finish(id);
        self.events.push_back(match refusal {
            None => Event::Read(id),
            Some(refusal) => Event::ReadRefused(id, refusal),
        });
    }

    /// The peer says what became of a write.
    pub(super) fn write_done(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { kind, id, .. } = *header;
        let refusal = if header.status == 0 { None } else { Some(refusal_of(header)?) };
        if id >= self.out.next_write || self.writes.is_finished(id) || !self.out.is_sent(id) {
            return Err(PeerError::NotAsked { kind, id });
        }
        self.writes.finish(id);
        self.events.push_back(match refusal {
            None => Event::Written(id),
            Some(refusal) => Event::WriteRefused(id, refusal),
        });
        Ok(())
    }

    /// The peer sends nothing of a read.
    pub(super) fn read_refused(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { kind, id, .. } = *header;
        let refusal = refusal_of(header)?;
        let read = self.incoming.get(&(Kind::ReadReply, id));
        if read.is_none_or(Incoming::has_begun) {
            return Err(PeerError::NotAsked { kind, id });
        }
        self.incoming.remove(&(Kind::ReadReply, id));
        self.incomplete -= 1;
        self.read_completed(id, Some(refusal));
        Ok(())
    }

    /// What every frame says beside its purpose.
    pub(super) fn heard(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { posted, credit, .. } = *header;
        self.out.heard(posted, credit)
    }

    fn give_credit(&mut self, bytes: u64) {
        self.credit_out += bytes;
        self.out.owes_credit(self.credit_out, self.agreed.window);
    }
}
