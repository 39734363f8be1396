//! The peer's memory is at an address of this process: in the same process, or mapped.
//!
//! The CPU copies from host memory to host memory; between memories of
//! GPUs one launch for the whole list, or a copy engine for a single small piece; between host memory
//! and that of a GPU the launch for small pieces and a copy engine for large ones.

use super::copying::{Copying, KernelCopy};
use super::{Cursor, Flight, Found, Job, Limit, Path, Started};
use crate::control::Asked;
use crate::memory::{KernelView, LocalMemory};
use crate::names::{Op, Place};
use crate::remote::Lease;
use crate::{AgentError, CopyBy, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;
use warpverbs_gpu::{Blocks, Buffer};
use warpverbs_mem::{Kind, Pending, Progress, Region, copy, copy_on_host};
use warpverbs_peer::RemoteRange;

/// Bytes that are copied between two looks at whether the transfer is to go on.
const STEP: u64 = 4 << 20;
/// Between memories of GPUs a copy engine moves a single piece of at most this many bytes sooner than a
/// kernel: its start costs 4 µs less. It has half of the rate.
const ENGINE_TO: u64 = 4 << 20;
/// Copies that a copy engine is given at a time: enough to keep it busy, few enough to be cancelled.
const IN_FLIGHT: usize = 128;
/// The bytes of these, beside those of the last: what is waited for when a transfer ends early.
const AHEAD: usize = 32 << 20;

struct Direct {
    there: There,
    copying: Copying,
}

/// Where the peer's memory is.
enum There {
    /// A registration of another agent of this process, which alone keeps it.
    Here(Weak<LocalMemory>),
    /// Mapped, and kept in place by the peer as long as there is a lease.
    Mapped(Buffer, KernelView),
}

impl Path for Direct {
    fn is_by_cpu(&self, job: &Job) -> bool {
        let on_host = (job.local.kind, job.remote.info.place) == (Kind::Host, Place::Host);
        on_host && self.copying.copy_by != CopyBy::Kernel
    }

    fn start(
        &self,
        peer: &Arc<dyn Asked>,
        job: &Arc<Job>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let started = match &self.there {
            There::Here(owner) => {
                let owner = owner.upgrade().ok_or_else(|| job.remote.extent.deregistered())?;
                let held = owner.hold()?;
                let there = Reached {
                    buffer: &held.buffer,
                    view: &held.view,
                    owner: Some(&owner),
                    lease: None,
                };
                let started = self.copy(job, there, limit);
                owner.left();
                started
            }
            There::Mapped(buffer, view) => {
                let lease = Some(job.remote.lease(&**peer)?);
                self.copy(job, Reached { buffer, view, owner: None, lease }, limit)
            }
        };
        job.local.left();
        started
    }
}

/// The peer's memory during a post.
struct Reached<'a> {
    buffer: &'a Buffer,
    view: &'a KernelView,
    /// Its registration, if that is of this process.
    owner: Option<&'a LocalMemory>,
    lease: Option<Lease>,
}

impl Direct {
    fn copy(
        &self,
        job: &Arc<Job>,
        there: Reached<'_>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let held = job.local.hold()?;
        let Reached { buffer: remote, view, owner, lease } = there;
        let (local, copying) = (&held.buffer, &self.copying);
        let on_host = |buffer: &Buffer| buffer.region().kind() == Kind::Host;
        let mixed = on_host(local) != on_host(remote);
        let by_kernel = match copying.copy_by {
            CopyBy::Auto if mixed => Copying::are_small(job),
            CopyBy::Auto if on_host(local) => false,
            CopyBy::Auto => job.pieces.len() > 1 || job.bytes > ENGINE_TO,
            CopyBy::Kernel => true,
            CopyBy::Engine => false,
        };
        if !by_kernel && !mixed {
            return one_by_one(job, (local, remote), lease, limit);
        }
        // A copy engine, too, is faster where the host memory is registered with the driver.
        let views = held.view.get(local, &*copying.gpu).and_then(|local| {
            let remote = view.get(remote, &*copying.gpu)?;
            Ok([local, remote])
        });
        match views {
            Ok(views) if by_kernel => {
                let copy = copying.launch(&self.list(job, owner, &views)?, limit)?;
                let job = job.clone();
                let kernel = Kernel { copy, cancelled: false, job, _lease: lease };
                Ok(Started::Flight(Box::new(kernel)))
            }
            Err(error) if copying.copy_by == CopyBy::Kernel => Err(job.failed(&error)),
            _ => one_by_one(job, (local, remote), lease, limit),
        }
    }

    /// The list as the kernel takes it, which the job keeps for the next post.
    fn list(
        &self,
        job: &Job,
        owner: Option<&LocalMemory>,
        buffers: &[Buffer; 2],
    ) -> Result<Blocks, AgentError> {
        let mut lists = lock(&job.lists);
        if lists.is_empty() {
            owner.into_iter().chain([&*job.local]).for_each(|memory| memory.ends(&job.lists));
            lists.push(self.copying.list(job, buffers, job.pieces.iter().copied())?);
        }
        Ok(lists[0].clone())
    }
}

/// A launch that copies a whole list.
struct Kernel {
    /// Declared before the lease: dropping it waits until the peer's memory is no longer accessed.
    copy: KernelCopy,
    cancelled: bool,
    job: Arc<Job>,
    _lease: Option<Lease>,
}

impl Flight for Kernel {
    fn poll(&mut self) -> Result<bool, AgentError> {
        let done = match self.cancelled {
            true => self.copy.withdraw(),
            false => self.copy.is_done(),
        };
        done.map_err(|error| self.job.failed(&error))
    }

    /// It is withdrawn at once, since other kernels may delay its start without limit.
    fn cancel(&mut self, _: Instant) {
        self.cancelled = true;
    }
}

/// Copies by the CPU, or by the copy engine of the side that is not host memory.
fn one_by_one(
    job: &Arc<Job>,
    (local, remote): (&Buffer, &Buffer),
    lease: Option<Lease>,
    limit: &Limit<'_>,
) -> Result<Started, AgentError> {
    let (local, remote) = (local.region().clone(), remote.region().clone());
    let on_host = (local.kind(), remote.kind()) == (Kind::Host, Kind::Host);
    let copies = Copies {
        job: job.clone(),
        local,
        remote,
        cursor: Cursor::default(),
        in_flight: VecDeque::new(),
        ahead: 0,
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
    job: Arc<Job>,
    local: Region,
    remote: Region,
    /// How far copies have been started.
    cursor: Cursor,
    /// In the order of their start. Dropping one waits for it, so this comes before the lease.
    in_flight: VecDeque<(Pending, usize)>,
    /// The bytes of these.
    ahead: usize,
    cancelled: bool,
    _lease: Option<Lease>,
}

/// A copy: to where, from where, how many bytes.
type Step<'a> = ((&'a Region, u64), (&'a Region, u64), usize);

impl Copies {
    /// The next copy, if there is one.
    fn step(&mut self) -> Option<Step<'_>> {
        let next = self.cursor.take(&self.job.pieces, STEP)?;
        let (here, there) = ((&self.local, next.local), (&self.remote, next.remote));
        let len = next.len;
        Some(match self.job.op {
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
                self.job.advance(since);
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
            while let Some((first, len)) = self.in_flight.front() {
                if !first.is_done()? {
                    break;
                }
                self.ahead -= len;
                self.job.advance(*len as u64);
                self.in_flight.pop_front();
            }
            if self.cancelled || self.in_flight.len() >= IN_FLIGHT || self.ahead >= AHEAD {
                return Ok(self.in_flight.is_empty());
            }
            let Some(((to, dst), (from, src), len)) = self.step() else {
                return Ok(self.in_flight.is_empty());
            };
            match copy(to, dst, from, src, len)? {
                Progress::Pending(pending) => {
                    self.in_flight.push_back((pending, len));
                    self.ahead += len;
                }
                Progress::Done => self.job.advance(len as u64),
            }
        }
    }

    fn cancel(&mut self, _: Instant) {
        self.cancelled = true;
    }
}

/// To memory of another agent of this process.
pub(crate) fn same_process(
    copying: &Copying,
    local: &LocalMemory,
    remote: &Arc<LocalMemory>,
) -> Found {
    let held = remote.hold().map_err(|error| vec![error.to_string()])?;
    reachable(local, &held.buffer)?;
    let (there, copying) = (There::Here(Arc::downgrade(remote)), copying.clone());
    Ok((Box::new(Direct { there, copying }), String::new()))
}

/// To memory of a peer that is mapped here. By the connection to the peer it can take the memory back.
pub(crate) fn mapped(
    copying: &Copying,
    local: &LocalMemory,
    range: &RemoteRange,
    connect: impl FnOnce() -> Result<(), AgentError>,
) -> Found {
    let decision = range.decision();
    let Some(remote) = range.mapped() else {
        return Err(decision.not_better.iter().map(ToString::to_string).collect());
    };
    reachable(local, remote)?;
    let kind = local.kind;
    if remote.region().kind() == Kind::Host && kind != Kind::Host {
        // The driver would have to register memory that belongs to another process.
        return Err(vec![format!("{kind} does not reach host memory of others")]);
    }
    connect().map_err(|error| vec![error.to_string()])?;
    let there = There::Mapped(remote.clone(), KernelView::default());
    Ok((Box::new(Direct { there, copying: copying.clone() }), decision.by.clone()))
}

/// Whether the CPU or a copy engine gets from one to the other.
fn reachable(local: &LocalMemory, remote: &Buffer) -> Result<(), Vec<String>> {
    let held = local.hold().map_err(|error| vec![error.to_string()])?;
    let (local, remote) = (held.region(), remote.region());
    let host = [local, remote].iter().all(|region| region.kind() == Kind::Host);
    match host || local.copier().is_some() || remote.copier().is_some() {
        true => Ok(()),
        false => {
            Err(vec![format!("no engine copies between {} and {}", local.kind(), remote.kind())])
        }
    }
}
