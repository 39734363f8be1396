//! A link over its sockets. Never waits and keeps no time; whoever calls does.

mod bounce;
mod copies;
mod device;
mod inbound;
mod outbound;
#[cfg(test)]
mod tests;
mod transmit;

pub(super) use device::Device;

use super::error::TcpError;
use super::keys::Keys;
use super::protocol::{Event, Goodbye, Kind, Met, PeerError, Protocol, Refusal};
use bounce::Bounce;
use copies::{Copying, Then};
use inbound::Inbound;
use outbound::Outbound;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_mem::{HostBuf, MemError, Region};

/// Passes without anything to do after which lazy news are sent.
const LAZY: u32 = 256;
/// Sockets other than the first are looked at in every so manyeth pass while nothing is expected.
const SELDOM: u32 = 8;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Send,
    Receive,
    Write,
    Read,
    Notify,
}

/// An operation that was posted; its result is kept until it is taken.
struct Operation {
    memory: Option<Region>,
    result: Option<Result<u64, TcpError>>,
}

/// What the caller should wait for.
pub(super) struct Interest {
    /// A copy engine is at work: look again soon.
    pub(super) soon: bool,
    /// For each socket, whether more can come from it, and whether it is full.
    pub(super) sockets: Vec<(bool, bool)>,
}

pub(super) struct Engine {
    protocol: Protocol,
    keys: Keys,
    sockets: Arc<[TcpStream]>,
    outbound: Vec<Outbound>,
    inbound: Vec<Inbound>,
    operations: FxHashMap<(Class, u64), Operation>,
    /// Messages before their receive, and notifications.
    messages: FxHashMap<u64, Region>,
    notes: FxHashMap<u64, Region>,
    notifications: VecDeque<Vec<u8>>,
    bounce: Bounce,
    /// What receives payload, unless the sockets themselves do.
    device: Option<Device>,
    copies: VecDeque<Copying>,
    waste: Region,
    zeros: Option<Region>,
    memory_error: Option<MemError>,
    fault: Option<TcpError>,
    /// Another thread wants the end.
    ending: Arc<AtomicBool>,
    peer_finished: bool,
    passes: u32,
    idle: u32,
    deferred: bool,
}

impl Engine {
    pub(super) fn new(
        met: Met<TcpStream>,
        keys: Keys,
        device: Option<Device>,
        zerocopy: Option<u64>,
    ) -> Result<Self, TcpError> {
        let count = met.sockets.len();
        let outbound = met.sockets.iter().map(|socket| Outbound::new(socket, zerocopy));
        Ok(Self {
            protocol: Protocol::new(met.agreed),
            keys,
            outbound: outbound.collect(),
            sockets: met.sockets.into(),
            inbound: (0..count).map(|_| Inbound::default()).collect(),
            operations: FxHashMap::default(),
            messages: FxHashMap::default(),
            notes: FxHashMap::default(),
            notifications: VecDeque::new(),
            bounce: Bounce::default(),
            device,
            copies: VecDeque::new(),
            waste: HostBuf::region(64 << 10)?,
            zeros: None,
            memory_error: None,
            fault: None,
            ending: Arc::default(),
            peer_finished: false,
            passes: 0,
            idle: 0,
            deferred: false,
        })
    }

    pub(super) fn sockets(&self) -> Arc<[TcpStream]> {
        self.sockets.clone()
    }

    /// Set by a thread that waits to abort: no system call begins after the one that is made.
    pub(super) fn ending(&self) -> Arc<AtomicBool> {
        self.ending.clone()
    }

    fn check_ending(&self) -> Result<(), TcpError> {
        match self.ending.load(Ordering::Relaxed) {
            true => Err(TcpError::Aborted),
            false => Ok(()),
        }
    }

    /// Where payload was put; `None` if the sockets receive by themselves.
    pub(super) fn placed(&self) -> Option<crate::receive::PayloadCounts> {
        self.device.as_ref().map(|device| device.placed)
    }

    pub(super) fn fault(&self) -> Result<(), TcpError> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// Posts an operation on `memory`, which [`Engine::begin`] begins.
    pub(super) fn post(
        &mut self,
        class: Class,
        memory: Region,
        key: u32,
        addr: u64,
    ) -> Result<u64, TcpError> {
        self.fault()?;
        let len = memory.len() as u64;
        let id = match class {
            Class::Send => self.protocol.post_send(len)?,
            Class::Receive => self.protocol.post_receive(len),
            Class::Write => self.protocol.post_write(len, key, addr)?,
            Class::Read => self.protocol.post_read(len, key, addr)?,
            Class::Notify => self.protocol.post_notification(len)?,
        };
        let operation = Operation { memory: Some(memory), result: None };
        self.operations.insert((class, id), operation);
        Ok(id)
    }

    /// Begins what was posted, as far as the sockets take it.
    pub(super) fn begin(&mut self) {
        if self.fault.is_none()
            && let Err(error) = self.transmit()
        {
            self.fail(error);
        }
        self.handle_events();
    }

    /// Whether the kernel may read what this operation sends.
    fn is_held(&self, class: Class, id: u64) -> bool {
        let kind = match class {
            Class::Send => Kind::Message,
            Class::Write => Kind::Write,
            _ => return false,
        };
        self.outbound.iter().any(|outbound| outbound.holds(kind, id))
    }

    /// Whether the kernel may read memory of the program.
    pub(super) fn reads_memory(&self) -> bool {
        self.outbound.iter().any(Outbound::reads_memory)
    }

    /// Sends of all sockets that were to be without copies, and how many the kernel copied.
    pub(super) fn zerocopied(&self) -> (u64, u64) {
        let each = self.outbound.iter().map(Outbound::zerocopied);
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// The result of an operation, if it is complete.
    pub(super) fn take(&mut self, class: Class, id: u64) -> Option<Result<u64, TcpError>> {
        let zerocopied = self.fault.is_none() && self.reads_memory();
        if zerocopied && self.is_held(class, id) {
            return None;
        }
        let Some(operation) = self.operations.get_mut(&(class, id)) else {
            return Some(Err(TcpError::UnknownOperation));
        };
        let result = match operation.result.take() {
            Some(result) => result,
            None => Err(self.hopeless(class)?),
        };
        self.operations.remove(&(class, id));
        Some(result)
    }

    /// Why an operation that is not complete never will be.
    fn hopeless(&self, class: Class) -> Option<TcpError> {
        if self.fault.is_some() {
            return self.fault.clone();
        }
        let from_peer = matches!(class, Class::Receive | Class::Write | Class::Read);
        (from_peer && self.has_all()).then_some(TcpError::Closed)
    }

    /// Whether everything that the peer ever sent is where it belongs. Its goodbye may come before
    /// payload on other sockets.
    fn has_all(&self) -> bool {
        let moving = self.device.as_ref().is_some_and(Device::is_moving);
        let mut sockets = 0..self.sockets.len() as u16;
        self.peer_finished
            && self.copies.is_empty()
            && !moving
            && sockets.all(|socket| self.protocol.is_finished(socket))
    }

    pub(super) fn take_notification(&mut self) -> Option<Vec<u8>> {
        let bytes = self.notifications.pop_front()?;
        self.protocol.consumed(bytes.len() as u64);
        Some(bytes)
    }

    /// One look at everything. Whether there was anything to do.
    pub(super) fn progress(&mut self) -> Result<bool, TcpError> {
        self.fault()?;
        self.pass().inspect_err(|error| self.fail(error.clone()))?;
        let busy = self.idle == 0;
        self.fault().map(|()| busy)
    }

    fn pass(&mut self) -> Result<(), TcpError> {
        self.passes = self.passes.wrapping_add(1);
        let mut busy = self.finish_copies()?;
        let all = self.protocol.expects_payload()
            || self.peer_finished
            || self.passes.is_multiple_of(SELDOM);
        let count = if all { self.sockets.len() as u16 } else { 1 };
        let mut received = false;
        for socket in 0..count {
            received |= match self.device {
                Some(_) if socket != 0 => self.receive_fragments(socket)?,
                _ => self.receive(socket)?,
            };
        }
        for (outbound, socket) in self.outbound.iter_mut().zip(&*self.sockets) {
            busy |= outbound.reap(socket)?;
        }
        busy |= self.unpack()?;
        self.handle_events();
        busy |= received;
        // Answers wait for one pass, so that they travel with what the program sends next.
        self.deferred = received && !self.deferred;
        if !self.deferred {
            busy |= self.transmit()?;
            self.handle_events();
        }
        self.idle = if busy { 0 } else { self.idle.saturating_add(1) };
        if self.idle == 1
            && let Some(device) = &mut self.device
        {
            // Other links may wait for these pages.
            device.return_tokens()?;
        }
        if !busy && (self.idle >= LAZY || self.protocol.is_urgent()) {
            self.send_news()?;
        }
        Ok(())
    }

    /// Sends what the peer was not told yet, because it may never hear of it otherwise.
    pub(super) fn send_news(&mut self) -> Result<(), TcpError> {
        let room = self.fault.is_none() && self.outbound[0].has_room();
        if room && let Some(frame) = self.protocol.update(true) {
            self.outbound[0].push(&frame.header);
            self.flush(0)?;
        }
        Ok(())
    }

    fn memory_of(&self, class: Class, id: u64) -> Option<Region> {
        self.operations.get(&(class, id))?.memory.clone()
    }

    pub(super) fn handle_events(&mut self) {
        while let Some(event) = self.protocol.poll_event() {
            let refused = |refusal: Refusal| Err(TcpError::Refused(refusal));
            match event {
                Event::Sent(id) => self.complete(Class::Send, id, None),
                Event::Received { id, len } => self.complete(Class::Receive, id, Some(Ok(len))),
                Event::Deliver { id, len } => self.deliver(id, len),
                Event::TooLong { id, len } => {
                    let _ = self.unbuffer(Kind::Message, id);
                    let memory = self.memory_of(Class::Receive, id);
                    let capacity = memory.map_or(0, |memory| memory.len() as u64);
                    let error = TcpError::TooLong { len, capacity };
                    self.complete(Class::Receive, id, Some(Err(error)));
                }
                Event::Misplaced(id) => {
                    let error = self.memory_failed();
                    self.complete(Class::Receive, id, Some(Err(error)));
                }
                Event::Written(id) => self.complete(Class::Write, id, None),
                Event::WriteRefused(id, why) => {
                    self.complete(Class::Write, id, Some(refused(why)));
                }
                Event::Read(id) => self.complete(Class::Read, id, None),
                Event::ReadRefused(id, why) => self.complete(Class::Read, id, Some(refused(why))),
                Event::Notified(id) => self.complete(Class::Notify, id, None),
                Event::Notification { id, len } => {
                    let mut bytes = vec![0; len as usize];
                    let read = self.unbuffer(Kind::Notification, id).read(0, &mut bytes);
                    self.memory_error = self.memory_error.take().or(read.err());
                    self.notifications.push_back(bytes);
                }
                Event::Goodbye(Goodbye::Finished) => self.peer_finished = true,
                Event::Goodbye(reason) => self.fail(TcpError::PeerGaveUp(reason)),
            }
        }
    }

    fn memory_failed(&self) -> TcpError {
        let unknown = MemError::CopyFailed { code: 0, what: "bringing a message into its memory" };
        TcpError::Memory(self.memory_error.clone().unwrap_or(unknown))
    }

    /// Keeps the result; without one, all bytes of the memory.
    fn complete(&mut self, class: Class, id: u64, result: Option<Result<u64, TcpError>>) {
        if let Some(operation) = self.operations.get_mut(&(class, id)) {
            let memory = operation.memory.take();
            let all = memory.map_or(0, |memory| memory.len() as u64);
            operation.result = Some(result.unwrap_or(Ok(all)));
        }
    }

    /// Ends the link. The peer is told why, as far as that is possible at once.
    pub(super) fn fail(&mut self, error: TcpError) {
        if self.fault.is_some() {
            return;
        }
        let error = match error {
            // A socket of a peer that has closed in good order refuses what comes later.
            TcpError::Socket { .. } if self.peer_finished => TcpError::Closed,
            error => error,
        };
        let reason = match error {
            TcpError::Peer(PeerError::ClosedMidway { .. })
            | TcpError::PeerGaveUp(_)
            | TcpError::Closed => None,
            TcpError::Peer(_) => Some(Goodbye::Fault),
            _ => Some(Goodbye::Failed),
        };
        if let Some(reason) = reason
            && self.outbound[0].is_empty()
        {
            self.protocol.abort(reason);
            if let Some(frame) = self.protocol.next_frame(0, &mut self.keys) {
                self.outbound[0].push(&frame.header);
                let _ = self.flush(0);
            }
        }
        self.fault = Some(error);
        for (socket, outbound) in self.sockets.iter().zip(&self.outbound) {
            match outbound.reads_memory() {
                true => disconnect(socket),
                false => drop(socket.shutdown(Shutdown::Write)),
            }
        }
    }

    /// Fails everything, and waits for the copies that are under way.
    pub(super) fn abort(&mut self) {
        self.fail(TcpError::Aborted);
        self.copies.clear();
        if let Some(device) = self.device.take() {
            device.finish();
        }
    }

    /// Nothing can be posted any more.
    pub(super) fn close(&mut self) {
        self.protocol.close();
    }

    /// Whether the goodbye was handed to the sockets.
    pub(super) fn is_flushed(&self) -> bool {
        self.protocol.is_closed() && self.outbound.iter().all(Outbound::is_empty)
    }

    /// Whether the peer has said goodbye and all its sockets have ended.
    pub(super) fn peer_is_gone(&self) -> bool {
        self.has_all() && self.inbound.iter().all(|inbound| inbound.ended)
    }

    pub(super) fn interest(&self) -> Interest {
        let moving = self.device.as_ref().is_some_and(Device::is_moving);
        let copying = moving || self.outbound.iter().any(Outbound::is_copying);
        let halves = self.inbound.iter().zip(&self.outbound);
        let sockets = halves.enumerate().map(|(socket, (inbound, outbound))| {
            // Payload that is not announced yet waits in its socket.
            let due = self.protocol.announced(socket as u16) != 0;
            let more = !inbound.ended && (due || self.device.is_none() || socket == 0);
            (more, outbound.blocked)
        });
        Interest { soon: copying || !self.copies.is_empty(), sockets: sockets.collect() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let halves = self.sockets.iter().zip(&self.outbound);
        halves.filter(|(_, outbound)| outbound.reads_memory()).for_each(|half| disconnect(half.0));
    }
}

/// Resets a link, so that the kernel drops what it has yet to send: memory that the program may
/// use for something else from now on.
fn disconnect(socket: &TcpStream) {
    // Refused only of a socket that is not connected any more.
    let _ = rustix::net::connect_unspec(socket);
}
