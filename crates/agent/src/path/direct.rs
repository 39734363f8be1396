//! The peer's memory is at an address of this process: in the same process, or mapped.

use super::{Attempt, Flight, Pair, Path, PathKind, Started};
use crate::memory::LocalMemory;
use crate::prepared::Part;
use crate::{AgentError, Op};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;
use warpverbs_mem::{Kind, Pending, Progress, Region, copy, copy_on_host};
use warpverbs_peer::{Identity, Introduction, Reason, attach};

/// Bytes that are copied between two looks at whether the transfer was cancelled.
const STEP: u64 = 4 << 20;

/// The peer's memory, at an address of this process.
enum Direct {
    /// A registration of another agent, which alone keeps it.
    Here(Weak<LocalMemory>),
    /// Stays mapped until the peer's memory is forgotten.
    Mapped(Region),
}

impl Path for Direct {
    fn start(&self, op: Op, part: &Arc<Part>, cancel: &AtomicBool) -> Result<Started, AgentError> {
        match self {
            Self::Mapped(remote) => move_all(op, part, remote, cancel),
            Self::Here(owner) => {
                let owner = owner.upgrade().ok_or_else(|| part.remote.deregistered())?;
                owner.check()?;
                move_all(op, part, owner.region(), cancel)
            }
        }
    }
}

/// Copies by the CPU, or by the copy engine of whichever side is no host memory.
fn move_all(
    op: Op,
    part: &Part,
    remote: &Region,
    cancel: &AtomicBool,
) -> Result<Started, AgentError> {
    let local = part.local.region();
    let (to, from) = match op {
        Op::Read => (local, remote),
        Op::Write => (remote, local),
    };
    let on_host = (to.kind(), from.kind()) == (Kind::Host, Kind::Host);
    let mut last = None;
    let mut since = 0;
    for piece in &part.pieces {
        let (mut done, ends) = (0, piece.len);
        while done < ends {
            let step = (ends - done).min(STEP);
            let (at, there) = (piece.local + done, piece.remote + done);
            let (dst, src) = match op {
                Op::Read => (at, there),
                Op::Write => (there, at),
            };
            match on_host {
                true => copy_on_host(to, dst, from, src, step as usize)?,
                false => match copy(to, dst, from, src, step as usize)? {
                    Progress::Done => {}
                    Progress::Pending(pending) => last = Some(pending),
                },
            }
            done += step;
            since += step;
            if since >= STEP {
                since = 0;
                if cancel.load(Ordering::Relaxed) {
                    return Err(AgentError::Cancelled);
                }
            }
        }
    }
    // Copies of one engine finish in order, so the last one stands for all.
    Ok(last.map_or(Started::Done, |last| Started::Flight(Box::new(Copies(last)))))
}

struct Copies(Pending);

impl Flight for Copies {
    fn poll(&mut self) -> Result<bool, AgentError> {
        Ok(self.0.is_done()?)
    }

    fn cancel(&mut self) {}
}

pub(super) fn same_process(pair: &Pair<'_>) -> Attempt {
    let no = |why: &str| vec![Reason::new(PathKind::SameProcess.to_string(), why)];
    let Some(owner) = &pair.peer.here else { return Err(no("the peer is another process")) };
    let owner = owner.upgrade().ok_or_else(|| no("the peer's agent has ended"))?;
    let memory = owner.memory(pair.remote.extent.id).map_err(|error| no(&error.to_string()))?;
    reachable(pair, PathKind::SameProcess, memory.region())?;
    Ok((Box::new(Direct::Here(Arc::downgrade(&memory))), String::new()))
}

pub(super) fn mapped(pair: &Pair<'_>) -> Attempt {
    let what = PathKind::Mapped.to_string();
    let no = |why: String| vec![Reason::new(what.clone(), why)];
    let (Some(ticket), Some(server)) = (&pair.remote.info.ticket, &pair.peer.contact.descriptors)
    else {
        return Err(no("the peer's memory is not of a kind that processes map".into()));
    };
    let gpu = &pair.agent.gpu;
    let arena = gpu.arena(ticket.len).map_err(|error| no(error.to_string()))?;
    let identity = pair.peer.contact.identity.clone();
    let introduction = Introduction { identity, server: server.clone() };
    let deadline = Instant::now() + pair.agent.config.deadline;
    let own = Identity::of_this_process(&**gpu);
    let attached = attach(&arena, 0, &own, &introduction, ticket, deadline)?;
    let remote = attached.segment.buffer().region();
    let len = usize::try_from(pair.remote.extent.len).unwrap_or(usize::MAX);
    let remote = remote.slice(0, len).map_err(|error| no(error.to_string()))?;
    reachable(pair, PathKind::Mapped, &remote)?;
    let by = attached.by.to_string();
    Ok((Box::new(Direct::Mapped(remote)), by))
}

/// Whether the CPU or a copy engine gets from one to the other.
fn reachable(pair: &Pair<'_>, kind: PathKind, remote: &Region) -> Result<(), Vec<Reason>> {
    let local = pair.local.region();
    let host = [local, remote].iter().all(|region| region.kind() == Kind::Host);
    match host || local.copier().is_some() || remote.copier().is_some() {
        true => Ok(()),
        false => {
            let why = format!("no engine copies between {} and {}", local.kind(), remote.kind());
            Err(vec![Reason::new(kind.to_string(), why)])
        }
    }
}
