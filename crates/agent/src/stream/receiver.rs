//! The receiving end of a stream.

use super::account::{Account, Next};
use super::{End, Event, Offer, Stop, StreamConfig, StreamStop, Wish};
use crate::control::{Frame, Link};
use crate::deadline::Deadline;
use crate::memories::Registration;
use crate::names::Owner;
use crate::{AgentError, lock};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;
use warpverbs_gpu::Buffer;

/// Streams of an agent that wait for their senders, by name.
#[derive(Default)]
pub(crate) struct Offered(Mutex<HashMap<Arc<str>, Arc<Incoming>>>);

impl Offered {
    /// Answers a peer that asks for a stream: an [`Offer`], or nothing if no stream of this name is
    /// offered. `tell` returns the metadata of a ring.
    pub(crate) fn open(
        &self,
        tell: impl FnOnce(&Registration) -> Result<Vec<u8>, AgentError>,
        link: &Arc<Link>,
        from: &Owner,
        bytes: &[u8],
    ) -> Result<Vec<u8>, String> {
        let Wish { id, name } = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        let found = lock(&self.0).remove(&*name);
        let attach = |incoming: Arc<Incoming>| {
            let metadata = tell(&incoming.ring).map_err(|error| error.to_string())?;
            link.streams.insert(id, &incoming);
            let sender = Sender { link: link.clone(), owner: from.clone(), id };
            lock(&incoming.state).sender = Some(sender);
            let (slots, slot_bytes) = (incoming.slots, incoming.slot_bytes);
            Ok::<_, String>(Offer { slots, slot_bytes, memory: incoming.ring.id(), metadata })
        };
        let offer = found.map(attach).transpose()?;
        postcard::to_stdvec(&offer).map_err(|error: postcard::Error| error.to_string())
    }

    /// The agent ends.
    pub(crate) fn close(&self, why: &AgentError) {
        let waiting = std::mem::take(&mut *lock(&self.0));
        waiting.values().for_each(|incoming| incoming.lose(why));
    }
}

/// The part that the program, the messages it holds and the connection share.
struct Incoming {
    offered: Weak<Offered>,
    /// Itself, to be offered again.
    this: Weak<Self>,
    name: Arc<str>,
    slots: u32,
    slot_bytes: u64,
    ring: Registration,
    state: Mutex<State>,
    news: Condvar,
}

struct State {
    account: Account,
    sender: Option<Sender>,
    /// Why nothing more arrives.
    over: Option<AgentError>,
}

struct Sender {
    link: Arc<Link>,
    owner: Owner,
    /// The stream's number on this connection.
    id: u64,
}

impl Incoming {
    fn send(&self, state: &State, event: Event<'static>) {
        if let Some(Sender { link, id, .. }) = &state.sender {
            link.send(&Frame::Stream { id: *id, event });
        }
    }

    /// Sends the new limit to the sender, if it is time.
    fn raise(&self, state: &mut State) {
        if state.over.is_none()
            && let Some(limit) = state.account.raise()
        {
            self.send(state, Event::Room { limit });
        }
    }

    fn give_up(&self, why: AgentError, said: &'static str) {
        let mut state = lock(&self.state);
        if state.over.is_none() && !state.account.is_over() {
            state.over = Some(why);
            self.send(&state, Event::GivenUp { why: said.into() });
        }
        let sender = state.sender.take();
        drop(state);
        self.news.notify_all();
        if let Some(Sender { link, id, .. }) = sender {
            link.streams.remove(id);
        }
    }
}

impl Incoming {
    /// Its sender has not taken it up: offers it to another.
    fn offer_again(&self) -> Result<(), String> {
        let (Some(offered), Some(this)) = (self.offered.upgrade(), self.this.upgrade()) else {
            return Ok(());
        };
        let mut waiting = lock(&offered.0);
        let mut state = lock(&self.state);
        if state.account.is_used() {
            return Err("a stream was declined after it had been used".to_owned());
        }
        if let Some(Sender { link, id, .. }) = state.sender.take() {
            link.streams.remove(id);
        }
        // Unless its receiver was dropped, or has offered another one of this name.
        if state.over.is_none() {
            waiting.entry(self.name.clone()).or_insert(this);
        }
        Ok(())
    }
}

impl End for Incoming {
    fn event(&self, event: Event<'_>) -> Result<(), String> {
        if event == Event::NotTaken {
            return self.offer_again();
        }
        let mut state = lock(&self.state);
        match event {
            Event::Filled { number, len } => state.account.filled(number, len)?,
            Event::End { count } => {
                state.account.end(count)?;
                self.send(&state, Event::Ended);
            }
            Event::GivenUp { why } => {
                let peer = state.sender.as_ref().map(|sender| sender.owner.to_string());
                let (stream, peer) = (self.name.to_string(), peer.unwrap_or_default());
                state.over.get_or_insert(AgentError::GivenUp { stream, peer, why: why.into() });
            }
            other => return Err(format!("{other:.60?} to its receiver")),
        }
        self.raise(&mut state);
        drop(state);
        self.news.notify_all();
        Ok(())
    }

    fn lose(&self, why: &AgentError) {
        lock(&self.state).over.get_or_insert(why.clone());
        self.news.notify_all();
    }
}

impl Stop for Incoming {
    fn stop(&self) {
        self.give_up(AgentError::Cancelled, "it was cancelled");
    }
}

/// The receiving end of a stream: messages in order, each once. Dropping it tells the sender.
pub struct StreamReceiver {
    incoming: Arc<Incoming>,
}

impl StreamReceiver {
    pub(crate) fn new(
        offered: &Arc<Offered>,
        ring: Registration,
        name: &str,
        config: &StreamConfig,
    ) -> Result<Self, AgentError> {
        if ring.len() < config.bytes()? {
            return Err(AgentError::Config {
                field: "memory",
                value: format!("{} bytes", ring.len()),
                expected: "the bytes of all slots",
            });
        }
        let (slots, slot_bytes) = (config.slots, config.slot_bytes);
        let account = Account::new(slots.into(), slot_bytes);
        let state = Mutex::new(State { account, sender: None, over: None });
        let (name, news) = (Arc::<str>::from(name), Condvar::new());
        let incoming = Arc::new_cyclic(|this| Incoming {
            offered: Arc::downgrade(offered),
            this: this.clone(),
            name: name.clone(),
            slots,
            slot_bytes,
            ring,
            state,
            news,
        });
        let mut waiting = lock(&offered.0);
        if waiting.contains_key(&name) {
            return Err(AgentError::Config {
                field: "name",
                value: format!("{name:?}"),
                expected: "a name that no offered stream has yet",
            });
        }
        waiting.insert(name, incoming.clone());
        drop(waiting);
        Ok(Self { incoming })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.incoming.name
    }

    /// The sender, once there is one.
    pub fn sender(&self) -> Option<Owner> {
        lock(&self.incoming.state).sender.as_ref().map(|sender| sender.owner.clone())
    }

    /// Waits for the next message; nothing after the end of the stream. Messages that arrived
    /// before a sender was lost are given before the error is.
    ///
    /// # Errors
    /// None came in time; the sender was lost or has given up, each with its name; it was stopped.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Message>, AgentError> {
        let incoming = &self.incoming;
        let deadline = Deadline::after(timeout);
        let mut state = lock(&incoming.state);
        loop {
            match state.account.take() {
                Next::Message { number, len } => {
                    let at = number % u64::from(incoming.slots) * incoming.slot_bytes;
                    return Ok(Some(Message { incoming: incoming.clone(), number, at, len }));
                }
                Next::End => return Ok(None),
                Next::Nothing => {}
            }
            if let Some(why) = &state.over {
                return Err(why.clone());
            }
            let from = state.sender.as_ref().map(|sender| sender.owner.clone());
            state = deadline.wait(&incoming.news, state, || {
                let from = from.map_or("any sender".to_owned(), |owner| owner.to_string());
                format!("a message of stream {:?} of {from}", incoming.name)
            })?;
        }
    }

    /// Ends the stream from another thread.
    pub fn stopper(&self) -> StreamStop {
        StreamStop(self.incoming.clone())
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        let incoming = &self.incoming;
        // First, so that it is not offered again.
        incoming.give_up(AgentError::Cancelled, "its receiver was dropped");
        if let Some(offered) = incoming.offered.upgrade() {
            let mut waiting = lock(&offered.0);
            let own = waiting.get(&incoming.name).is_some_and(|other| Arc::ptr_eq(other, incoming));
            let removed = own.then(|| waiting.remove(&incoming.name));
            // The ring must not be deregistered under the lock.
            drop(waiting);
            drop(removed);
        }
    }
}

impl fmt::Debug for StreamReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Incoming { name, slots, slot_bytes, .. } = &*self.incoming;
        write!(f, "StreamReceiver({name:?}, {slots} slots of {slot_bytes} bytes)")
    }
}

/// A message in its slot of the ring. Dropping it gives the slot back. Messages may be kept and dropped
/// in any order, but slots are used in turn: in a ring of n slots, message k + n waits until message k is
/// dropped.
pub struct Message {
    incoming: Arc<Incoming>,
    number: u64,
    at: u64,
    len: u64,
}

impl Message {
    /// Its number; the first is 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, for kernels and for copies by the host; not to be used after the message is
    /// dropped, when others take their place.
    ///
    /// # Errors
    /// The ring's memory failed.
    pub fn buffer(&self) -> Result<Buffer, AgentError> {
        let ring = self.incoming.ring.buffer();
        Ok(ring.slice(self.at, self.len as usize)?)
    }

    /// Copies bytes out, from `offset` on; waits for the GPU's copy engine if it is its memory.
    ///
    /// # Errors
    /// The range is not inside the message, or the copy engine failed.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), AgentError> {
        Ok(self.buffer()?.region().read_through(offset, out)?)
    }

    /// A copy of all bytes.
    ///
    /// # Errors
    /// The copy engine failed.
    pub fn to_vec(&self) -> Result<Vec<u8>, AgentError> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let mut state = lock(&self.incoming.state);
        state.account.give_back(self.number);
        self.incoming.raise(&mut state);
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} of {:?}, {} bytes)", self.number, self.incoming.name, self.len)
    }
}
