//! The kernel copies from process to process (`process_vm_readv`, `process_vm_writev`); memory of a GPU
//! here goes through a bounce buffer, which a copy engine reads and writes.

use super::{Attempt, Pair, Path, PathKind, Started};
use crate::lock;
use crate::peer::Peer;
use crate::prepared::Part;
use crate::{AgentError, Op};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use warpverbs_mem::{
    Direction, Kind, Pending, Process, ProcessError, ProcessPiece, Progress, Region, copy,
};
use warpverbs_peer::Reason;

/// Bytes between two looks at whether the transfer was cancelled.
const STEP: u64 = 4 << 20;
/// Pieces that are handed over at a time.
const BATCH: usize = 512;

/// Bytes of each half of a bounce buffer.
const HALF: u64 = STEP;

struct ProcessCopy {
    process: Process,
    /// Where the peer's memory begins in its process.
    base: u64,
    /// Where local memory is not the host's: host memory of which transfers use one half after the
    /// other, one transfer at a time.
    bounce: Option<Mutex<Region>>,
    /// How long a copy engine may take.
    deadline: Duration,
}

impl Path for ProcessCopy {
    fn start(
        &self,
        op: Op,
        peer: &Arc<Peer>,
        part: &Arc<Part>,
        cancel: &AtomicBool,
    ) -> Result<Started, AgentError> {
        let direction = match op {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
        };
        // The peer keeps its memory in place until this process has agreed that it is deregistered,
        // which it does only while there is no lease.
        let _lease = part.remote.lease(peer)?;
        let bounce = self.bounce.as_ref();
        let bounce = bounce.map(|bounce| Bounce {
            half: 0,
            landing: [Vec::new(), Vec::new()],
            deadline: self.deadline,
            memory: lock(bounce),
        });
        let mut batch = Batch { path: self, direction, part, pieces: Vec::new(), bytes: 0, bounce };
        if let [piece] = &part.pieces[..]
            && piece.len <= STEP
            && batch.bounce.is_none()
        {
            batch.copy(&[self.piece(piece.local, piece.remote, piece.len)])?;
            return Ok(Started::Done);
        }
        batch.pieces.reserve_exact(BATCH.min(part.pieces.len() + 1));
        for piece in &part.pieces {
            let mut done = 0;
            while done < piece.len {
                let step = (piece.len - done).min(STEP);
                let next = self.piece(piece.local + done, piece.remote + done, step);
                batch.push(next, cancel)?;
                done += step;
            }
        }
        batch.flush()?;
        batch.bounce.as_mut().map_or(Ok(()), Bounce::land)?;
        Ok(Started::Done)
    }
}

impl ProcessCopy {
    fn piece(&self, offset: u64, remote: u64, len: u64) -> ProcessPiece {
        ProcessPiece { offset, remote: self.base + remote, len }
    }
}

struct Batch<'a> {
    path: &'a ProcessCopy,
    direction: Direction,
    part: &'a Part,
    pieces: Vec<ProcessPiece>,
    bytes: u64,
    bounce: Option<Bounce<'a>>,
}

impl Batch<'_> {
    fn push(&mut self, piece: ProcessPiece, cancel: &AtomicBool) -> Result<(), AgentError> {
        if self.pieces.len() == BATCH || self.bytes + piece.len > STEP {
            self.flush()?;
            if cancel.load(Ordering::Relaxed) {
                return Err(AgentError::Cancelled);
            }
        }
        self.bytes += piece.len;
        self.pieces.push(piece);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), AgentError> {
        let pieces = std::mem::take(&mut self.pieces);
        match self.bounce.take() {
            None => self.copy(&pieces)?,
            Some(mut bounce) => {
                self.bounced(&mut bounce, &pieces)?;
                self.bounce = Some(bounce);
            }
        }
        self.pieces = pieces;
        self.pieces.clear();
        self.bytes = 0;
        Ok(())
    }

    /// By way of the half of the bounce buffer that is next, in which pieces lie one behind the other.
    fn bounced(&self, bounce: &mut Bounce<'_>, pieces: &[ProcessPiece]) -> Result<(), AgentError> {
        let (half, local) = (bounce.half, self.part.local.region());
        bounce.half = 1 - half;
        bounce.land_half(half)?;
        let mut at = half as u64 * HALF;
        let packed = |piece: &ProcessPiece| {
            let offset = at;
            at += piece.len;
            ProcessPiece { offset, ..*piece }
        };
        let packed: Vec<_> = pieces.iter().map(packed).collect();
        if self.direction == Direction::Read {
            self.transfer(&bounce.memory, &packed)?;
        }
        for (piece, packed) in pieces.iter().zip(&packed) {
            let len = piece.len as usize;
            let copied = match self.direction {
                Direction::Read => copy(local, piece.offset, &bounce.memory, packed.offset, len),
                Direction::Write => copy(&bounce.memory, packed.offset, local, piece.offset, len),
            };
            if let Progress::Pending(pending) = copied? {
                bounce.landing[half].push(pending);
            }
        }
        if self.direction == Direction::Write {
            bounce.land_half(half)?;
            self.transfer(&bounce.memory, &packed)?;
        }
        Ok(())
    }

    fn copy(&self, pieces: &[ProcessPiece]) -> Result<(), AgentError> {
        self.transfer(self.part.local.region(), pieces)
    }

    fn transfer(&self, local: &Region, pieces: &[ProcessPiece]) -> Result<(), AgentError> {
        let moved = self.path.process.copy(self.direction, local, pieces);
        moved.map_err(|error| match error {
            ProcessError::Memory(error) => error.into(),
            // Of a process that has just ended this is the first sign.
            error => self.failed(&error),
        })
    }

    fn failed(&self, cause: &dyn Display) -> AgentError {
        AgentError::Path {
            path: PathKind::ProcessCopy,
            peer: self.part.remote.extent.owner.to_string(),
            cause: cause.to_string(),
        }
    }
}

/// The bounce buffer, while one transfer has it.
struct Bounce<'a> {
    /// The half that is next.
    half: usize,
    /// Of each half, the copies of the engine that use it. Dropping them waits.
    landing: [Vec<Pending>; 2],
    deadline: Duration,
    // Behind the copies.
    memory: MutexGuard<'a, Region>,
}

impl Bounce<'_> {
    /// Waits for the copies of a half.
    fn land_half(&mut self, half: usize) -> Result<(), AgentError> {
        // Copies of one engine finish in order, so the last one stands for all.
        let Some(pending) = self.landing[half].last() else { return Ok(()) };
        let asked = Instant::now();
        while !pending.is_done()? {
            if asked.elapsed() > self.deadline {
                let (what, after) = ("a copy engine".to_owned(), self.deadline);
                return Err(AgentError::Timeout { what, after });
            }
            std::hint::spin_loop();
        }
        self.landing[half].clear();
        Ok(())
    }

    fn land(&mut self) -> Result<(), AgentError> {
        (0..2).try_for_each(|half| self.land_half(half))
    }
}

pub(super) fn process_copy(pair: &Pair<'_>) -> Attempt {
    let no = |why: String| vec![Reason::new(PathKind::ProcessCopy.to_string(), why)];
    let (own, peer) = (&pair.agent.contact.introduction.identity, &pair.peer.contact);
    let theirs = &peer.introduction.identity;
    if own.boot_id.is_empty() || own.boot_id != theirs.boot_id {
        return Err(no(format!("{} is another machine than {}", theirs.host, own.host)));
    }
    if own.pid_namespace != theirs.pid_namespace {
        return Err(no(format!(
            "the peer is in {}, not in {}",
            theirs.pid_namespace, own.pid_namespace
        )));
    }
    let local = pair.local.region();
    let copier = local.copier();
    if pair.remote.info.place != Kind::Host.into() || local.kind() != Kind::Host && copier.is_none()
    {
        return Err(no(format!("from {} memory to {}", local.kind(), pair.remote.info.place)));
    }
    let bounce = copier.filter(|_| local.kind() != Kind::Host);
    let bounce = bounce.map(|copier| copier.host_memory(2 * HALF as usize)).transpose();
    let bounce = bounce.map_err(|error| no(format!("the bounce buffer: {error}")))?.map(Mutex::new);
    let by = if bounce.is_some() { "a bounce buffer" } else { "" };
    pair.agent
        .connect(pair.peer, pair.agent.config.deadline)
        .map_err(|error| no(error.to_string()))?;
    let process = Process::attach(theirs.pid, peer.proof_addr, &peer.proof);
    let process = process.map_err(|error| no(error.to_string()))?;
    let base = pair.remote.info.addr;
    Ok((
        Box::new(ProcessCopy { process, base, bounce, deadline: pair.agent.config.deadline }),
        by.to_owned(),
    ))
}
