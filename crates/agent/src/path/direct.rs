//! The peer's memory is at an address of this process: in the same process, or mapped.
//!
//! Who copies depends on the memory: the CPU from host memory to host memory; between memories of
//! GPUs one launch for the whole list, or a copy engine for a single small piece; between host memory
//! and that of a GPU the launch for small pieces and a copy engine for large ones.

use super::{Attempt, Flight, Limit, Pair, Path, PathKind, Started};
use crate::config::CopyBy;
use crate::lock;
use crate::memory::{KernelView, LocalMemory};
use crate::peer::{Lease, Peer};
use crate::prepared::Part;
use crate::{AgentConfig, AgentError, Op};
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use warpverbs_gpu::{BlockRun, BlockSide, Blocks, Buffer, Gpu, Launch};
use warpverbs_mem::{Kind, Pending, Progress, Region, copy, copy_on_host};
use warpverbs_peer::Reason;

/// Bytes that are copied between two looks at whether the transfer is to go on.
const STEP: u64 = 4 << 20;
/// Between host memory and that of a GPU a copy engine moves pieces of at least this many bytes, on
/// average, faster than a kernel: it has fewer and larger requests on the bus.
pub(super) const ENGINE_FROM: u64 = 256 << 10;
/// Between memories of GPUs a copy engine moves a single piece of at most this many bytes sooner than a
/// kernel: its start costs 4 µs less. It has half of the rate.
const ENGINE_TO: u64 = 4 << 20;
/// Copies that a copy engine is given at a time: enough to keep it busy, few enough to be cancelled.
const IN_FLIGHT: usize = 128;

struct Direct {
    place: Place,
    gpu: Arc<dyn Gpu>,
    copy_by: CopyBy,
    kernel_blocks: Option<u32>,
    deadline: Duration,
}

/// The peer's memory.
enum Place {
    /// A registration of another agent of this process, which alone keeps it.
    Here(Weak<LocalMemory>),
    /// Mapped, and kept in place by the peer as long as there is a lease.
    Mapped(Buffer, KernelView),
}

impl Path for Direct {
    fn start(
        &self,
        op: Op,
        peer: &Arc<Peer>,
        part: &Arc<Part>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        match &self.place {
            Place::Here(owner) => {
                let owner = owner.upgrade().ok_or_else(|| part.remote.extent.deregistered())?;
                owner.check()?;
                self.copy(op, part, (&owner.buffer, &owner.view), None, limit)
            }
            Place::Mapped(remote, view) => {
                let lease = part.remote.lease(peer)?;
                self.copy(op, part, (remote, view), Some(lease), limit)
            }
        }
    }
}

impl Direct {
    fn copy(
        &self,
        op: Op,
        part: &Arc<Part>,
        (remote, view): (&Buffer, &KernelView),
        lease: Option<Lease>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let local = &part.local.buffer;
        let on_host = |buffer: &Buffer| buffer.region().kind() == Kind::Host;
        let mixed = on_host(local) != on_host(remote);
        let by_kernel = match self.copy_by {
            CopyBy::Auto if mixed => part.bytes < ENGINE_FROM * part.pieces.len() as u64,
            CopyBy::Auto if on_host(local) => false,
            CopyBy::Auto => part.pieces.len() > 1 || part.bytes > ENGINE_TO,
            CopyBy::Kernel => true,
            CopyBy::Engine => false,
        };
        if !by_kernel && !mixed {
            return one_by_one(op, part, remote, lease, limit);
        }
        // A copy engine, too, is faster where the host memory is registered with the driver.
        let views = part.local.view.get(local, &*self.gpu).and_then(|local| {
            let remote = view.get(remote, &*self.gpu)?;
            Ok([local, remote])
        });
        match views {
            Ok(views) if by_kernel => {
                let list = self.list(op, part, &views)?;
                let launch = list.copy(&*self.gpu, self.kernel_blocks, self.deadline)?;
                let (launch, part) = (Some(launch), part.clone());
                Ok(Started::Flight(Box::new(Kernel { launch, part, _lease: lease })))
            }
            Err(error) if self.copy_by == CopyBy::Kernel => Err(failed(part, &error)),
            _ => one_by_one(op, part, remote, lease, limit),
        }
    }

    /// The list as the kernel takes it, which the part keeps for the next post.
    fn list(&self, op: Op, part: &Part, buffers: &[Buffer; 2]) -> Result<Blocks, AgentError> {
        let mut lists = lock(&part.lists);
        if let [blocks] = &lists[..] {
            return Ok(blocks.clone());
        }
        let side = |buffer, offset, stride| BlockSide { buffer, offset, stride };
        let run = |piece: &crate::prepared::Piece| {
            let (here, there) = (side(0, piece.local, piece.len), side(1, piece.remote, piece.len));
            let (to, from) = match op {
                Op::Read => (here, there),
                Op::Write => (there, here),
            };
            BlockRun { to, from, bytes: piece.len, count: 1 }
        };
        let runs: Vec<_> = part.pieces.iter().map(run).collect();
        let blocks = Blocks::new(&*self.gpu, buffers, &runs);
        let blocks = blocks.map_err(|error| failed(part, &error))?;
        lists.push(blocks.clone());
        Ok(blocks)
    }
}

pub(super) fn failed(part: &Part, cause: &dyn Display) -> AgentError {
    let (peer, cause) = (part.remote.extent.owner.to_string(), cause.to_string());
    AgentError::Path { path: part.route.kind, peer, cause }
}

/// A launch that copies a whole list.
struct Kernel {
    launch: Option<Launch>,
    part: Arc<Part>,
    _lease: Option<Lease>,
}

impl Flight for Kernel {
    fn poll(&mut self) -> Result<bool, AgentError> {
        let Some(launch) = &mut self.launch else { return Ok(true) };
        let done = launch.is_done().map_err(|error| failed(&self.part, &error));
        if !matches!(done, Ok(false)) {
            self.launch = None;
        }
        done
    }

    /// A launch is not stopped: it takes milliseconds at most.
    fn cancel(&mut self, _: Instant) {}
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Some(launch) = self.launch.take() {
            // Bounded by the launch's own deadline, after which it is ended.
            let _ = launch.wait();
        }
    }
}

/// Copies by the CPU, or by the copy engine of whichever side is no host memory.
fn one_by_one(
    op: Op,
    part: &Arc<Part>,
    remote: &Buffer,
    lease: Option<Lease>,
    limit: &Limit<'_>,
) -> Result<Started, AgentError> {
    let (part, remote) = (part.clone(), remote.region().clone());
    let on_host = (part.local.region().kind(), remote.kind()) == (Kind::Host, Kind::Host);
    let copies = Copies {
        op,
        part,
        remote,
        at: (0, 0),
        in_flight: VecDeque::new(),
        cancelled: false,
        _lease: lease,
    };
    if on_host {
        return copies.by_cpu(limit);
    }
    Started::by(copies)
}

/// Copies of one piece after the other, of which an engine is given several at a time.
struct Copies {
    op: Op,
    part: Arc<Part>,
    remote: Region,
    /// The next piece, and how much of it has been started.
    at: (usize, u64),
    /// In the order of their start. Dropping one waits for it, so this comes before the lease.
    in_flight: VecDeque<Pending>,
    cancelled: bool,
    _lease: Option<Lease>,
}

/// A copy: to where, from where, how many bytes.
type Step<'a> = ((&'a Region, u64), (&'a Region, u64), usize);

impl Copies {
    /// The next copy, if there is one.
    fn step(&mut self) -> Option<Step<'_>> {
        let piece = self.part.pieces.get(self.at.0)?;
        let done = self.at.1;
        let len = (piece.len - done).min(STEP);
        self.at = match done + len == piece.len {
            true => (self.at.0 + 1, 0),
            false => (self.at.0, done + len),
        };
        let here = (self.part.local.region(), piece.local + done);
        let there = (&self.remote, piece.remote + done);
        Some(match self.op {
            Op::Read => (here, there, len as usize),
            Op::Write => (there, here, len as usize),
        })
    }

    fn by_cpu(mut self, limit: &Limit<'_>) -> Result<Started, AgentError> {
        let mut since = 0;
        while let Some(((to, dst), (from, src), len)) = self.step() {
            copy_on_host(to, dst, from, src, len)?;
            since += len as u64;
            if since >= STEP {
                since = 0;
                limit.check()?;
            }
        }
        Ok(Started::Done)
    }
}

impl Flight for Copies {
    fn poll(&mut self) -> Result<bool, AgentError> {
        loop {
            // Copies of one engine finish in order.
            while let Some(first) = self.in_flight.front() {
                if !first.is_done()? {
                    break;
                }
                self.in_flight.pop_front();
            }
            if self.cancelled || self.in_flight.len() >= IN_FLIGHT {
                return Ok(self.in_flight.is_empty());
            }
            let Some(((to, dst), (from, src), len)) = self.step() else {
                return Ok(self.in_flight.is_empty());
            };
            if let Progress::Pending(pending) = copy(to, dst, from, src, len)? {
                self.in_flight.push_back(pending);
            }
        }
    }

    fn cancel(&mut self, _: Instant) {
        self.cancelled = true;
    }
}

fn direct(pair: &Pair<'_>, place: Place) -> Box<dyn Path> {
    let (gpu, config) = (pair.agent.gpu.clone(), &pair.agent.config);
    let AgentConfig { copy_by, kernel_blocks, deadline, .. } = *config;
    Box::new(Direct { place, gpu, copy_by, kernel_blocks, deadline })
}

pub(super) fn same_process(pair: &Pair<'_>) -> Attempt {
    let no = |why: &str| vec![Reason::new(PathKind::SameProcess.to_string(), why)];
    let Some(owner) = &pair.peer.here else { return Err(no("the peer is another process")) };
    let owner = owner.upgrade().ok_or_else(|| no("the peer's agent has ended"))?;
    let memory = owner.memory(pair.remote.extent.id).map_err(|error| no(&error.to_string()))?;
    reachable(pair, PathKind::SameProcess, &memory.buffer)?;
    Ok((direct(pair, Place::Here(Arc::downgrade(&memory))), String::new()))
}

pub(super) fn mapped(pair: &Pair<'_>) -> Attempt {
    let no = |error| vec![Reason::new(PathKind::Mapped.to_string(), error)];
    let range = pair.remote.range(pair.agent, pair.peer, pair.until).map_err(no)?;
    let decision = range.decision();
    let Some(remote) = range.mapped() else {
        let named = |reason: &Reason| Reason::new(PathKind::Mapped.to_string(), reason);
        return Err(decision.not_better.iter().map(named).collect());
    };
    reachable(pair, PathKind::Mapped, remote)?;
    let on_host = |region: &Region| region.kind() == Kind::Host;
    if on_host(remote.region()) && !on_host(pair.local.region()) {
        // The driver would have to register memory that belongs to another process.
        let why = format!("{} does not reach host memory of others", pair.local.region().kind());
        return Err(vec![Reason::new(PathKind::Mapped.to_string(), why)]);
    }
    // The peer has to be able to take the memory back.
    pair.agent.connect(pair.peer, pair.left()).map_err(no)?;
    Ok((direct(pair, Place::Mapped(remote.clone(), KernelView::default())), decision.by.clone()))
}

/// Whether the CPU or a copy engine gets from one to the other.
fn reachable(pair: &Pair<'_>, kind: PathKind, remote: &Buffer) -> Result<(), Vec<Reason>> {
    let (local, remote) = (pair.local.region(), remote.region());
    let host = [local, remote].iter().all(|region| region.kind() == Kind::Host);
    match host || local.copier().is_some() || remote.copier().is_some() {
        true => Ok(()),
        false => {
            let why = format!("no engine copies between {} and {}", local.kind(), remote.kind());
            Err(vec![Reason::new(kind.to_string(), why)])
        }
    }
}
