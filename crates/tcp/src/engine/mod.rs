//! A link over its sockets. Never waits and keeps no time; the caller does.

mod device;
mod inbound;
mod outbound;
mod placement;
#[cfg(test)]
mod tests;
mod transmit;

pub(super) use device::Device;

use super::error::TcpError;
use super::keys::Keys;
use super::protocol::{Event, Goodbye, Met, Op, Protocol, Request};
use inbound::Inbound;
use outbound::Outbound;
use placement::Placement;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_mem::{BouncePool, HostBuf, Region};

/// Idle passes after which updates are sent that the peer does not wait for.
const LAZY: u32 = 256;
/// Passes from one look at the sockets other than the first to the next, while nothing is expected.
const SELDOM: u32 = 8;

/// The events that the caller should wait for.
pub(super) struct Interest {
    /// A copy engine is at work: poll again soon.
    pub(super) soon: bool,
    /// For each socket: whether to wait for input, and whether to wait for room to send.
    pub(super) sockets: Vec<(bool, bool)>,
}

pub(super) struct Engine {
    place: Placement,
    sockets: Arc<[TcpStream]>,
    outbound: Vec<Outbound>,
    inbound: Vec<Inbound>,
    notifications: VecDeque<Vec<u8>>,
    /// The receiver of payload, unless the sockets receive.
    device: Option<Device>,
    waste: Region,
    zeros: Option<Region>,
    fault: Option<TcpError>,
    /// Another thread wants to abort the link.
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
        // A buffer for each socket that sends, and two for each that receives.
        let bounce = BouncePool::new(met.agreed.chunk as usize, count);
        let outbound = met.sockets.iter();
        let outbound = outbound.map(|socket| Outbound::new(socket, zerocopy, bounce.share()));
        Ok(Self {
            place: Placement::new(Protocol::new(met.agreed), keys),
            outbound: outbound.collect(),
            sockets: met.sockets.into(),
            inbound: (0..count).map(|_| Inbound::new(bounce.share())).collect(),
            notifications: VecDeque::new(),
            device,
            waste: HostBuf::region(64 << 10)?,
            zeros: None,
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
        check_ending(&self.ending)
    }

    /// Where payload was put; `None` if the sockets receive by themselves.
    pub(super) fn counts(&self) -> Option<crate::receive::PayloadCounts> {
        self.device.as_ref().map(|device| device.counts)
    }

    pub(super) fn fault(&self) -> Result<(), TcpError> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// Posts a request on `memory`, which [`Engine::begin`] begins.
    pub(super) fn post(
        &mut self,
        op: Op,
        memory: Region,
        remote: (u32, u64),
    ) -> Result<Request, TcpError> {
        self.fault()?;
        let len = memory.len() as u64;
        let request = self.place.protocol.post(op, memory, len, remote)?;
        // A message that came before its receive may be complete.
        self.handle_events();
        Ok(request)
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

    /// Whether the kernel may read memory of the program.
    pub(super) fn reads_memory(&self) -> bool {
        self.outbound.iter().any(Outbound::reads_memory)
    }

    /// Sends of all sockets that were to be without copies, and how many the kernel copied.
    pub(super) fn zerocopied(&self) -> (u64, u64) {
        let each = self.outbound.iter().map(Outbound::zerocopied);
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// The result of a request, if it is complete or never will be.
    pub(super) fn take(&mut self, request: Request) -> Option<Result<u64, TcpError>> {
        // The kernel may read its memory.
        let is_held = || self.outbound.iter().any(|outbound| outbound.holds(request));
        if self.fault.is_none() && self.reads_memory() && is_held() {
            return None;
        }
        match self.place.protocol.take(request) {
            Some(Ok(len)) => Some(Ok(len)),
            Some(Err(failure)) => Some(Err(self.place.error_of(failure))),
            None => {
                let why = self.hopeless(request.op)?;
                self.place.protocol.forget(request);
                Some(Err(why))
            }
        }
    }

    /// The error that keeps a request from ever completing.
    fn hopeless(&self, op: Op) -> Option<TcpError> {
        if self.fault.is_some() {
            return self.fault.clone();
        }
        let from_peer = matches!(op, Op::Receive | Op::Write | Op::Read);
        (from_peer && self.has_all()).then_some(TcpError::Closed)
    }

    /// Whether all that the peer has sent is in place. Its close frame may arrive before payload on other
    /// sockets.
    fn has_all(&self) -> bool {
        let moving = self.device.as_ref().is_some_and(Device::is_moving);
        let mut sockets = 0..self.sockets.len() as u16;
        self.peer_finished
            && !self.place.is_copying()
            && !moving
            && sockets.all(|socket| self.place.protocol.is_finished(socket))
    }

    pub(super) fn take_notification(&mut self) -> Option<Vec<u8>> {
        let bytes = self.notifications.pop_front()?;
        self.place.protocol.consumed(bytes.len() as u64);
        Some(bytes)
    }

    /// One pass over all sockets, copies and completions. Whether there was anything to do.
    pub(super) fn progress(&mut self) -> Result<bool, TcpError> {
        self.fault()?;
        self.pass().inspect_err(|error| self.fail(error.clone()))?;
        let busy = self.idle == 0;
        self.fault().map(|()| busy)
    }

    fn pass(&mut self) -> Result<(), TcpError> {
        self.passes = self.passes.wrapping_add(1);
        let mut busy = self.place.finish_copies();
        let all = self.place.protocol.expects_payload()
            || self.peer_finished
            || self.passes.is_multiple_of(SELDOM);
        let count = if all { self.sockets.len() as u16 } else { 1 };
        let mut received = false;
        for socket in 0..count {
            received |= match &mut self.device {
                Some(device) if socket != 0 => {
                    let ended = &mut self.inbound[usize::from(socket)].ended;
                    device.receive(socket, &mut self.place, ended, &self.ending)?
                }
                _ => self.receive(socket)?,
            };
        }
        for (outbound, socket) in self.outbound.iter_mut().zip(&*self.sockets) {
            busy |= outbound.reap(socket)?;
        }
        if let Some(device) = &mut self.device {
            busy |= device.unpack(&mut self.place)?;
        }
        self.handle_events();
        busy |= received;
        // Answers wait for one pass, so that they travel with the program's next frame.
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
        if !busy && (self.idle >= LAZY || self.place.protocol.is_urgent()) {
            self.send_news()?;
        }
        Ok(())
    }

    /// Sends outstanding receive counts and credit, which no other frame may come to carry.
    pub(super) fn send_news(&mut self) -> Result<(), TcpError> {
        let room = self.fault.is_none() && self.outbound[0].has_room();
        if room && let Some(frame) = self.place.protocol.update(true) {
            self.outbound[0].push(&frame.header);
            self.flush(0)?;
        }
        Ok(())
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.place.protocol.poll_event() {
            match event {
                Event::Deliver { id, len } => self.place.deliver(id, len),
                Event::Notification { id, len } => {
                    let bytes = self.place.notification(id, len);
                    self.notifications.push_back(bytes);
                }
                Event::Goodbye(Goodbye::Finished) => self.peer_finished = true,
                Event::Goodbye(reason) => self.fail(TcpError::PeerGaveUp(reason)),
            }
        }
    }

    /// Ends the link, and sends the peer the reason if the socket takes it at once.
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
            TcpError::Cut(_) | TcpError::PeerGaveUp(_) | TcpError::Closed => None,
            TcpError::Peer(_) => Some(Goodbye::Fault),
            _ => Some(Goodbye::Failed),
        };
        if let Some(reason) = reason
            && self.outbound[0].is_empty()
        {
            self.place.protocol.abort(reason);
            if let Some(frame) = self.place.protocol.next_frame(0, &mut self.place.keys) {
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
        self.place.finish();
        if let Some(device) = self.device.take() {
            device.finish();
        }
    }

    /// Nothing can be posted any more.
    pub(super) fn close(&mut self) {
        self.place.protocol.close();
    }

    /// Whether the close frames were handed to the sockets.
    pub(super) fn is_flushed(&self) -> bool {
        self.place.protocol.is_closed() && self.outbound.iter().all(Outbound::is_empty)
    }

    /// Whether the peer's close frame has come and all its sockets have ended.
    pub(super) fn peer_is_gone(&self) -> bool {
        self.has_all() && self.inbound.iter().all(|inbound| inbound.ended)
    }

    pub(super) fn interest(&self) -> Interest {
        let moving = self.device.as_ref().is_some_and(Device::is_moving);
        let copying = moving || self.outbound.iter().any(Outbound::is_copying);
        let halves = self.inbound.iter().zip(&self.outbound);
        let sockets = halves.enumerate().map(|(socket, (inbound, outbound))| {
            // Payload that is not announced yet waits in its socket.
            let due = self.place.protocol.announced(socket as u16) != 0;
            let more = !inbound.ended && (due || self.device.is_none() || socket == 0);
            (more, outbound.blocked)
        });
        Interest { soon: copying || self.place.is_copying(), sockets: sockets.collect() }
    }
}

/// Nothing begins any more once a thread wants to abort the link.
fn check_ending(ending: &AtomicBool) -> Result<(), TcpError> {
    match ending.load(Ordering::Relaxed) {
        true => Err(TcpError::Aborted),
        false => Ok(()),
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let halves = self.sockets.iter().zip(&self.outbound);
        halves.filter(|(_, outbound)| outbound.reads_memory()).for_each(|half| disconnect(half.0));
    }
}

/// Resets a connection, so that the kernel drops unsent bytes: they lie in memory that the program may
/// reuse from now on.
fn disconnect(socket: &TcpStream) {
    // Refused only of a socket that is not connected any more.
    let _ = rustix::net::connect_unspec(socket);
}
