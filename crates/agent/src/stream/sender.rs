//! The sending end of a stream.

use super::{End, Event, MOST_SLOTS, Offer, Sending, Stop, StreamStop, Wish};
use crate::control::{Frame, Link, Service, ended};
use crate::deadline::Deadline;
use crate::memories::Registration;
use crate::metadata::{NAMES, check_name};
use crate::names::{Owner, PathKind};
use crate::remote_memory::RemoteMemory;
use crate::transfer::Transfer;
use crate::{AgentError, lock};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Bytes of messages on their way at most, but at least two messages. It bounds what a peer that offers
/// long slots may have this end allocate and pin: places for longer messages follow when such are sent.
const STAGING: u64 = 16 << 20;
/// Between two questions whether the peer offers the stream: from the first to the longest.
const ASK: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Counts of a sender so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Messages sent.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often the receiver has given back slots.
    pub credits: u64,
    /// Messages that had to wait for the receiver to give back a slot.
    pub stalls: u64,
    /// How long they have waited in all.
    pub stalled: Duration,
}

/// The part that the program and the connection share.
struct Outgoing {
    id: u64,
    name: String,
    /// For errors.
    peer: String,
    slots: u64,
    link: Arc<Link>,
    state: Mutex<Shared>,
    news: Condvar,
}

struct Shared {
    /// The number of the next message.
    next: u64,
    /// Messages below this number may be sent.
    limit: u64,
    /// The receiver was told of the end.
    end_said: bool,
    /// And has all messages.
    ended: bool,
    /// Why nothing more can be sent.
    over: Option<AgentError>,
    credits: u64,
    /// Changes with all of the above, and when a transfer ends.
    changes: u64,
}

impl Outgoing {
    fn change(&self, change: impl FnOnce(&mut Shared) -> Result<(), String>) -> Result<(), String> {
        let mut state = lock(&self.state);
        change(&mut state)?;
        state.changes += 1;
        drop(state);
        self.news.notify_all();
        Ok(())
    }

    /// Abandons it and informs the receiver. The first reason stays.
    fn give_up(&self, why: &AgentError) {
        let _ = self.change(|state| {
            if state.over.is_none() && !state.ended {
                state.over = Some(why.clone());
                let event = Event::GivenUp { why: why.to_string().into() };
                self.link.send(&Frame::Stream { id: self.id, event });
            }
            Ok(())
        });
    }

    fn check(state: &Shared) -> Result<(), AgentError> {
        state.over.clone().map_or(Ok(()), Err)
    }
}

impl End for Outgoing {
    fn event(&self, event: Event<'_>) -> Result<(), String> {
        self.change(|state| match event {
            Event::Room { limit } => {
                let most = state.next + self.slots;
                if limit <= state.limit || limit > most {
                    return Err(format!(
                        "room up to {limit}, expected {} to {most}",
                        state.limit + 1
                    ));
                }
                state.limit = limit;
                state.credits += 1;
                Ok(())
            }
            Event::Ended if state.end_said => {
                state.ended = true;
                Ok(())
            }
            Event::GivenUp { why } => {
                let (stream, peer) = (self.name.clone(), self.peer.clone());
                state.over.get_or_insert(AgentError::GivenUp { stream, peer, why: why.into() });
                Ok(())
            }
            other => Err(format!("{other:.60?} to its sender")),
        })
    }

    fn lose(&self, why: &AgentError) {
        let _ = self.change(|state| {
            state.over.get_or_insert(why.clone());
            Ok(())
        });
    }
}

impl Stop for Outgoing {
    fn stop(&self) {
        self.give_up(&AgentError::Cancelled);
    }
}

/// A transfer of the stream has ended.
impl Wake for Outgoing {
    fn wake(self: Arc<Self>) {
        let _ = self.change(|_| Ok(()));
    }
}

/// A message on its way, and what it was made for: it is posted again for messages of this length in
/// this slot.
struct Posted {
    slot: u64,
    len: u64,
    transfer: Transfer,
}

/// Where messages lie until they are in the receiver's memory.
struct Staging {
    /// For each place, what was posted last. Before the memory, so that transfers end first.
    posted: Vec<Option<Posted>>,
    /// Bytes of a place.
    place: u64,
    memory: Registration,
}

impl Staging {
    /// Places of this many bytes, for a ring of `slots`.
    fn new(agent: &dyn Sending, place: u64, slots: u64) -> Result<Self, AgentError> {
        // No more than the ring.
        let depth = (STAGING / place).clamp(slots.min(2), slots);
        let memory = agent.stage((depth * place) as usize)?;
        Ok(Self { posted: (0..depth).map(|_| None).collect(), place, memory })
    }
}

/// The sending end of a stream, for one thread at a time. Dropping it before
/// [`StreamSender::finish`] tells the receiver that messages are missing.
pub struct StreamSender {
    agent: Weak<dyn Sending>,
    outgoing: Arc<Outgoing>,
    waker: Waker,
    slot_bytes: u64,
    ring: RemoteMemory,
    staging: Staging,
    path: PathKind,
    stats: StreamStats,
}

impl StreamSender {
    pub(crate) fn new(
        agent: &Arc<dyn Sending>,
        peer: &str,
        name: &str,
        deadline: &Deadline,
    ) -> Result<Self, AgentError> {
        check_name("name", name).map_err(|_| AgentError::Config {
            field: "name",
            value: format!("{name:?}"),
            expected: NAMES,
        })?;
        let (peer, link) = agent.link_to(peer, deadline)?;
        let (id, offer) = ask(&link, &peer, name, deadline)?;
        let refused = |why: String| AgentError::Refused { peer: peer.to_string(), why };
        if !(1..=MOST_SLOTS).contains(&offer.slots) || offer.slot_bytes == 0 {
            let (slots, bytes) = (offer.slots, offer.slot_bytes);
            return Err(refused(format!("it offers {slots} slots of {bytes} bytes")));
        }
        let slots = u64::from(offer.slots);
        let outgoing = Arc::new(Outgoing {
            id,
            name: name.to_owned(),
            peer: peer.to_string(),
            slots,
            link: link.clone(),
            state: Mutex::new(Shared {
                next: 0,
                limit: slots,
                end_said: false,
                ended: false,
                over: None,
                credits: 0,
                changes: 0,
            }),
            news: Condvar::new(),
        });
        link.streams.insert(id, &outgoing);
        if link.is_lost() {
            outgoing.lose(&link.why());
        }
        let made = Self::open(agent, (&peer, deadline), outgoing.clone(), &offer);
        made.inspect_err(|why| outgoing.give_up(why))
    }

    /// Takes an offer up.
    fn open(
        agent: &Arc<dyn Sending>,
        (peer, deadline): (&Owner, &Deadline),
        outgoing: Arc<Outgoing>,
        offer: &Offer,
    ) -> Result<Self, AgentError> {
        let Offer { slot_bytes, memory, ref metadata, .. } = *offer;
        let ring = agent.ring(peer, (metadata, memory), deadline)?;
        let slots = outgoing.slots;
        if slots.checked_mul(slot_bytes).is_none_or(|bytes| bytes > ring.len()) {
            let why = format!("{slots} slots of {slot_bytes} bytes in {} bytes", ring.len());
            return Err(AgentError::Refused { peer: peer.to_string(), why });
        }
        let staging = Staging::new(&**agent, slot_bytes.min(STAGING / 2), slots)?;
        let path = agent.path(&staging.memory, &ring, deadline)?;
        Ok(Self {
            agent: Arc::downgrade(agent),
            waker: outgoing.clone().into(),
            outgoing,
            slot_bytes,
            ring,
            staging,
            path,
            stats: StreamStats::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.outgoing.name
    }

    /// Slots of the receiver's ring.
    pub fn slots(&self) -> u64 {
        self.outgoing.slots
    }

    /// Bytes of the longest message.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// By which path messages go.
    pub fn path(&self) -> PathKind {
        self.path
    }

    /// Its counts so far.
    pub fn stats(&self) -> StreamStats {
        StreamStats { credits: lock(&self.outgoing.state).credits, ..self.stats }
    }

    /// Sends a message, of no more bytes than a slot: longer ones are for the program to split, as
    /// only it knows where. Its bytes are taken over on return; they may still be on their way. Waits
    /// while the receiver has no free slot.
    ///
    /// # Errors
    /// The message is too long, or no slot or memory was free in time: nothing was sent, and the call may
    /// be repeated. Any other error ends the stream: the receiver is lost or has abandoned it; it was
    /// stopped; a transfer failed.
    pub fn send(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), AgentError> {
        let len = bytes.len() as u64;
        if len > self.slot_bytes {
            let (stream, most) = (self.name().to_owned(), self.slot_bytes);
            return Err(AgentError::Message { stream, len, most });
        }
        let deadline = &Deadline::after(timeout);
        let number = self.wait_for_slot(deadline)?;
        if len > self.staging.place {
            self.make_room(len, deadline)?;
        }
        let at = (number % self.staging.posted.len() as u64) as usize;
        self.wait_for_transfer(at, deadline)?;
        lock(&self.outgoing.state).next += 1;
        if let Err(why) = self.post(at, number, bytes) {
            // If the receiver has given up, or is lost, that is the cause.
            self.outgoing.give_up(&why);
            return Outgoing::check(&lock(&self.outgoing.state));
        }
        self.stats.messages += 1;
        self.stats.bytes += len;
        Ok(())
    }

    /// Ends the stream, and waits until the receiver's agent has all messages, whether or not they
    /// have been taken.
    ///
    /// # Errors
    /// The receiver does not confirm in time, in which case the call may be repeated; otherwise as for
    /// [`StreamSender::send`].
    pub fn finish(&mut self, timeout: Duration) -> Result<(), AgentError> {
        let deadline = &Deadline::after(timeout);
        self.wait_for_transfers(deadline)?;
        let mut state = lock(&self.outgoing.state);
        if !state.end_said && state.over.is_none() {
            state.end_said = true;
            let event = Event::End { count: state.next };
            self.outgoing.link.send(&Frame::Stream { id: self.outgoing.id, event });
        }
        drop(state);
        self.wait(deadline, |state| state.ended.then_some(()))
    }

    /// Ends the stream from another thread.
    pub fn stopper(&self) -> StreamStop {
        StreamStop(self.outgoing.clone())
    }

    /// The number of the next message, when there is a slot for it.
    fn wait_for_slot(&mut self, deadline: &Deadline) -> Result<u64, AgentError> {
        let start = Instant::now();
        let state = lock(&self.outgoing.state);
        if state.end_said {
            return Err(AgentError::Config {
                field: "stream",
                value: "finished".into(),
                expected: "a stream that has not been finished",
            });
        }
        let stalled = state.next >= state.limit && state.over.is_none();
        drop(state);
        let room = |state: &Shared| (state.next < state.limit).then_some(state.next);
        let number = self.wait(deadline, room);
        if stalled {
            self.stats.stalls += u64::from(number.is_ok());
            self.stats.stalled += start.elapsed();
        }
        number
    }

    /// Waits until `done` has a result or the stream is over.
    fn wait<T>(
        &self,
        deadline: &Deadline,
        done: impl Fn(&Shared) -> Option<T>,
    ) -> Result<T, AgentError> {
        let outgoing = &*self.outgoing;
        let mut state = lock(&outgoing.state);
        loop {
            if let Some(over) = &state.over {
                return Err(over.clone());
            }
            if let Some(done) = done(&state) {
                return Ok(done);
            }
            let what = || format!("stream {:?} to {}", self.name(), self.ring.owner());
            state = deadline.wait(&outgoing.news, state, what)?;
        }
    }

    /// Makes the places long enough for a message of this length, which a slot is.
    fn make_room(&mut self, len: u64, deadline: &Deadline) -> Result<(), AgentError> {
        self.wait_for_transfers(deadline)?;
        let agent = self.agent.upgrade().ok_or_else(|| ended(self.ring.owner()))?;
        let place = len.checked_next_power_of_two().unwrap_or(len).min(self.slot_bytes);
        self.staging = Staging::new(&*agent, place, self.outgoing.slots)?;
        Ok(())
    }

    /// Waits until all messages have left.
    fn wait_for_transfers(&self, deadline: &Deadline) -> Result<(), AgentError> {
        (0..self.staging.posted.len()).try_for_each(|at| self.wait_for_transfer(at, deadline))
    }

    /// Waits until the message before, at this place of the staging memory, has left.
    fn wait_for_transfer(&self, at: usize, deadline: &Deadline) -> Result<(), AgentError> {
        let Some(Posted { transfer, .. }) = &self.staging.posted[at] else { return Ok(()) };
        loop {
            let seen = lock(&self.outgoing.state).changes;
            let mut end = transfer.completion();
            match Pin::new(&mut end).poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Ok(_)) => return Ok(()),
                Poll::Ready(Err(error)) => {
                    // The loss of the peer is the cause, if it is lost.
                    self.outgoing.give_up(&error);
                    return Outgoing::check(&lock(&self.outgoing.state));
                }
                Poll::Pending => {}
            }
            // Any event from now on changes the number of changes.
            self.wait(deadline, |state| (state.changes != seen).then_some(()))?;
        }
    }

    fn post(&mut self, at: usize, number: u64, bytes: &[u8]) -> Result<(), AgentError> {
        let (slot, len) = (number % self.outgoing.slots, bytes.len() as u64);
        let event = Event::Filled { number, len };
        let frame = Frame::Stream { id: self.outgoing.id, event };
        if bytes.is_empty() {
            self.outgoing.link.send(&frame);
            return Ok(());
        }
        let staged = at as u64 * self.staging.place;
        self.staging.memory.write(staged, bytes)?;
        let place = &mut self.staging.posted[at];
        if place.as_ref().is_none_or(|posted| (posted.slot, posted.len) != (slot, len)) {
            let agent = self.agent.upgrade().ok_or_else(|| ended(self.ring.owner()))?;
            let from = self.staging.memory.blocks(staged, len, 1)?;
            let to = self.ring.blocks(slot * self.slot_bytes, len, 1)?;
            let transfer = agent.write(&from, &to)?;
            *place = Some(Posted { slot, len, transfer });
        }
        match place {
            Some(posted) => posted.transfer.post_then(frame).map(drop),
            None => Ok(()),
        }
    }
}

/// Asks a peer for its stream until it offers it.
fn ask(
    link: &Link,
    peer: &dyn fmt::Display,
    name: &str,
    deadline: &Deadline,
) -> Result<(u64, Offer), AgentError> {
    let [mut pause, longest] = ASK;
    let what = || format!("opening stream {name:?} of {peer}");
    let refused = |error: postcard::Error| AgentError::Refused {
        peer: peer.to_string(),
        why: format!("cannot decode its offer of a stream: {error}"),
    };
    loop {
        let id = link.streams.number();
        let wish = postcard::to_stdvec(&Wish { id, name: name.into() }).map_err(refused)?;
        let answer = link.call(peer, Service::Stream, &wish, deadline);
        let bytes = answer.map_err(|error| match error {
            AgentError::Timeout { .. } => {
                link.send(&Frame::Stream { id, event: Event::NotTaken });
                deadline.late(what())
            }
            error => error,
        })?;
        if let Some(offer) = postcard::from_bytes(&bytes).map_err(refused)? {
            return Ok((id, offer));
        }
        std::thread::sleep(pause.min(deadline.left(what)?));
        pause = (pause * 2).min(longest);
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        let outgoing = &self.outgoing;
        // Transfers under way end before the receiver is told.
        self.staging.posted.clear();
        outgoing.give_up(&AgentError::Cancelled);
        outgoing.link.streams.remove(outgoing.id);
    }
}

impl fmt::Debug for StreamSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, owner, slots) = (self.name(), self.ring.owner(), self.slots());
        write!(f, "StreamSender({name:?} of {owner}, {slots} slots of {} bytes)", self.slot_bytes)
    }
}
