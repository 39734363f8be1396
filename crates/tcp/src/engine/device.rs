//! Payload sockets whose bytes may be in device memory: what arrived is unpacked to where it belongs,
//! and then the kernel gets its pages back.

use super::check_ending;
use super::placement::{Placement, Then};
use crate::error::TcpError;
use crate::protocol::{Due, Kind, Target};
use crate::receive::PayloadCounts;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use warpverbs_devmem::receive::{DeviceReceiver, Fragment, ReceiveError, Received, Source};
use warpverbs_devmem::unpack::{
    AreaId, AreaOffset, Move, Moves, Ticket, UnpackConfig, UnpackError, Unpacker,
};
use warpverbs_gpu::{Gpu, GpuKind};
use warpverbs_mem::{Kind as MemKind, Region};

/// System calls on one socket in a row.
const TURN: usize = 8;
/// Batches in flight at most: further fragments are collected, so that one launch moves many.
const BATCHES: usize = 4;
/// Moves that are collected at most.
const MOVES: usize = 4096;

/// The receiving half of a link's payload sockets.
pub(crate) struct Device {
    gpu: Arc<dyn Gpu>,
    unpacker: Unpacker,
    deadline: Duration,
    /// Of the sockets from 1 on.
    receivers: Vec<DeviceReceiver>,
    /// Memory in which fragments lie.
    sources: FxHashMap<(usize, Source), AreaId>,
    /// Where the kernel put payload.
    pub(super) counts: PayloadCounts,
    /// Of one call.
    fragments: Vec<Fragment>,
    moves: Moves,
    next: Batch,
    in_flight: VecDeque<(Ticket, Batch)>,
}

/// Kind and number of a transfer, and how many more of its bytes are in place.
type Placed = (Kind, u64, u64);

/// Fragments that are moved together.
#[derive(Default)]
struct Batch {
    /// By receiver.
    fragments: Vec<Vec<Fragment>>,
    /// Bytes of each transfer.
    placed: Vec<Placed>,
    /// Where transfers go, until the batch is submitted.
    targets: Vec<(Kind, u64, AreaId)>,
}

impl Batch {
    fn new(receivers: usize) -> Self {
        let fragments = (0..receivers).map(|_| Vec::new()).collect();
        Self { fragments, ..Self::default() }
    }

    fn place(&mut self, kind: Kind, id: u64, len: u64) {
        match self.placed.last_mut() {
            Some((last, of, bytes)) if (*last, *of) == (kind, id) => *bytes += len,
            _ => self.placed.push((kind, id, len)),
        }
    }
}

impl Device {
    pub(crate) fn new(
        gpu: Arc<dyn Gpu>,
        config: UnpackConfig,
        receivers: Vec<DeviceReceiver>,
    ) -> Self {
        Self {
            unpacker: Unpacker::new(gpu.clone(), config),
            deadline: config.deadline,
            gpu,
            sources: FxHashMap::default(),
            counts: PayloadCounts::default(),
            fragments: Vec::new(),
            moves: Moves::new(),
            next: Batch::new(receivers.len()),
            in_flight: VecDeque::new(),
            receivers,
        }
    }

    /// Whether moves are under way or wait.
    pub(super) fn is_moving(&self) -> bool {
        !self.in_flight.is_empty() || !self.moves.as_slice().is_empty()
    }

    /// The area of the memory in which a fragment lies.
    fn source(&mut self, receiver: usize, source: Source) -> Result<AreaId, ReceiveError> {
        if let Some(area) = self.sources.get(&(receiver, source)) {
            return Ok(*area);
        }
        let memory = self.receivers[receiver].memory(source).cloned();
        let area = self.unpacker.add(memory.ok_or(ReceiveError::Failed)?);
        self.sources.insert((receiver, source), area);
        Ok(area)
    }

    /// The area of a transfer's memory, if kernels of the device reach it.
    fn reach(&mut self, kind: Kind, id: u64, memory: &Region) -> Option<AreaId> {
        // Host memory would have to be pinned for each transfer.
        if memory.kind() == MemKind::Host && self.gpu.info().kind != GpuKind::Simt {
            return None;
        }
        let area = self.unpacker.add(self.gpu.map(memory).ok()?);
        self.next.targets.push((kind, id, area));
        Some(area)
    }

    /// Starts the moves that were collected, unless enough are under way.
    fn submit(&mut self) -> Result<bool, TcpError> {
        if self.moves.as_slice().is_empty() || self.in_flight.len() == BATCHES {
            return Ok(false);
        }
        let ticket = match self.unpacker.submit(self.moves.as_slice()) {
            Ok(ticket) => ticket,
            Err(UnpackError::Full) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.moves.clear();
        let batch = std::mem::replace(&mut self.next, Batch::new(self.receivers.len()));
        for (_, _, area) in &batch.targets {
            self.unpacker.remove(*area);
        }
        self.in_flight.push_back((ticket, batch));
        Ok(true)
    }

    /// The next batch whose bytes are where they belong, by transfer. Its fragments are given back.
    fn complete(&mut self) -> Result<Option<Vec<Placed>>, TcpError> {
        match self.in_flight.front() {
            Some((ticket, _)) if self.unpacker.completed()? >= *ticket => {}
            _ => return Ok(None),
        }
        let Some((_, batch)) = self.in_flight.pop_front() else { return Ok(None) };
        for (receiver, fragments) in self.receivers.iter_mut().zip(&batch.fragments) {
            receiver.give_back(fragments)?;
        }
        Ok(Some(batch.placed))
    }

    /// Waits for the moves that are under way.
    pub(super) fn finish(mut self) {
        if let Some((last, _)) = self.in_flight.back() {
            // Moves that hang keep their memory.
            let _ = self.unpacker.wait(*last, self.deadline);
        }
    }

    /// Returns to the kernel all tokens that were given back, even if they are few.
    pub(super) fn return_tokens(&mut self) -> Result<(), ReceiveError> {
        self.receivers.iter_mut().try_for_each(DeviceReceiver::return_tokens)
    }

    /// Receives what is due on a payload socket, as far as it has come, and says when the socket has
    /// `ended`. Whether there was anything.
    pub(super) fn receive(
        &mut self,
        socket: u16,
        place: &mut Placement,
        ended: &mut bool,
        ending: &AtomicBool,
    ) -> Result<bool, TcpError> {
        let receiver = usize::from(socket) - 1;
        let mut any = false;
        for _ in 0..TURN {
            check_ending(ending)?;
            *ended |= place.protocol.is_finished(socket);
            // Payload that is not announced has no place yet, and waits in the socket.
            let due = place.protocol.announced(socket);
            if due == 0 || self.moves.as_slice().len() >= MOVES {
                break;
            }
            let mut fragments = std::mem::take(&mut self.fragments);
            match self.receivers[receiver].receive(due, &mut fragments)? {
                Received::Bytes(_) => any = true,
                Received::WouldBlock => break,
                Received::End => {
                    *ended = true;
                    place.protocol.ended(socket)?;
                    break;
                }
            }
            for fragment in fragments.drain(..) {
                self.counts.count(&fragment);
                self.scatter(socket, place, fragment)?;
            }
            self.fragments = fragments;
        }
        Ok(any)
    }

    /// Cuts a fragment where transfers end, and sees to it that each part gets where it belongs.
    fn scatter(
        &mut self,
        socket: u16,
        place: &mut Placement,
        mut fragment: Fragment,
    ) -> Result<(), TcpError> {
        while fragment.len != 0
            && let Some(due) = place.protocol.due(socket)
        {
            let len = fragment.len.min(due.len);
            let part = Fragment { len, ..fragment };
            place.protocol.taken(socket, len);
            self.settle(socket, place, &due, part)?;
            fragment.at += len;
            fragment.offset += len;
            fragment.len -= len;
        }
        Ok(())
    }

    fn settle(
        &mut self,
        socket: u16,
        place: &mut Placement,
        due: &Due,
        part: Fragment,
    ) -> Result<(), TcpError> {
        let Due { kind, id, offset, target, .. } = *due;
        let receiver = usize::from(socket) - 1;
        let from = AreaOffset { area: self.source(receiver, part.source)?, offset: part.offset };
        let mut known = self.next.targets.iter().rev();
        let known = known.find(|(of, number, _)| (*of, *number) == (kind, id));
        let mut to = known.filter(|_| target != Target::Discard).map(|(_, _, area)| *area);
        let mut region = None;
        if to.is_none() {
            region = place.target(due)?;
            to = region.as_ref().and_then(|memory| self.reach(kind, id, memory));
        }
        if let Some(area) = to {
            self.moves.push(Move { from, to: AreaOffset { area, offset }, len: part.len });
            self.next.fragments[receiver].push(part);
            self.next.place(kind, id, part.len);
            return Ok(());
        }
        // Only a copy engine reaches the memory, or the payload is discarded.
        let landed = self.unpacker.area(from.area).map(|memory| memory.region().clone());
        match landed.filter(|_| region.is_some()) {
            Some(landed) => {
                let then = Then::Fragment { kind, id, socket, part };
                place.copy(Ok(region), offset, (&landed, part.offset), part.len, then);
            }
            None => {
                place.placed(kind, id, part.len, target != Target::Discard);
                self.receivers[receiver].give_back(&[part])?;
            }
        }
        Ok(())
    }

    /// Starts waiting moves, counts bytes whose moves are complete, and gives back their fragments.
    /// Whether there were any.
    pub(super) fn unpack(&mut self, place: &mut Placement) -> Result<bool, TcpError> {
        let mut any = self.submit()?;
        for (socket, part) in place.free.drain(..) {
            self.receivers[usize::from(socket) - 1].give_back(&[part])?;
        }
        while let Some(placed) = self.complete()? {
            any = true;
            for (kind, id, len) in placed {
                place.protocol.placed(kind, id, len);
            }
        }
        Ok(any)
    }
}
