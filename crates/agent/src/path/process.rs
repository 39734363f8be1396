//! The kernel copies from process to process (`process_vm_readv`, `process_vm_writev`); memory of a GPU
//! here goes through a [bounce buffer](super::bounce).

use super::bounce::{Bounce, Bounces};
use super::copying::Copying;
use super::{Cursor, Found, Job, Limit, Path, Started};
use crate::AgentError;
use crate::control::Asked;
use crate::memory::LocalMemory;
use crate::names::{Op, Place};
use crate::plan::Piece;
use crate::remote::{PeerMemory, Proven};
use std::sync::Arc;
use warpverbs_mem::{Direction, Kind, Process, ProcessError, ProcessPiece, Region};

/// Bytes between two looks at whether the transfer is to go on.
const STEP: u64 = 4 << 20;
/// Pieces that are handed over at a time.
const BATCH: usize = 512;

struct ProcessCopy {
    process: Arc<Process>,
    /// Where the peer's memory begins in its process.
    base: u64,
    /// Where a device copies the local side.
    bounce: Option<Arc<Bounce>>,
}

impl Path for ProcessCopy {
    fn is_by_cpu(&self, _: &Job) -> bool {
        self.bounce.is_none()
    }

    fn start(
        &self,
        peer: &Arc<dyn Asked>,
        job: &Arc<Job>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        self.copy(job, limit).inspect_err(|error| {
            // Its connection will say so, too, perhaps later.
            if matches!(error, AgentError::PeerLost { .. }) {
                peer.lose(error.clone());
            }
        })
    }
}

impl ProcessCopy {
    fn copy(&self, job: &Arc<Job>, limit: &Limit<'_>) -> Result<Started, AgentError> {
        let direction = match job.op {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
        };
        let held = job.local.hold()?;
        if let Some(bounce) = &self.bounce {
            let transfer = |memory: &Region, pieces: &[ProcessPiece]| {
                self.transfer(direction, job, memory, pieces)
            };
            let moved = bounce.run((job, &held), self.base, limit, transfer);
            job.local.left();
            return moved.map(|()| Started::Done);
        }
        let local = held.region();
        let mut batch = Batch { path: self, direction, job, local, pieces: Vec::new(), bytes: 0 };
        if let [piece] = &job.pieces[..]
            && piece.len <= STEP
        {
            batch.copy(&[self.piece(piece)])?;
            return Ok(Started::Done);
        }
        batch.pieces.reserve_exact(BATCH.min(job.pieces.len() + 1));
        let mut cursor = Cursor::default();
        while let Some(next) = cursor.take(&job.pieces, STEP) {
            batch.push(self.piece(&next), limit)?;
        }
        batch.flush()?;
        Ok(Started::Done)
    }

    fn piece(&self, piece: &Piece) -> ProcessPiece {
        let Piece { local: offset, remote, len } = *piece;
        ProcessPiece { offset, remote: self.base + remote, len }
    }

    fn transfer(
        &self,
        direction: Direction,
        job: &Job,
        local: &Region,
        pieces: &[ProcessPiece],
    ) -> Result<(), AgentError> {
        self.process.copy(direction, local, pieces).map_err(|error| match error {
            ProcessError::Memory(error) => error.into(),
            // A process that has just ended shows here before its connection does: the thread is the one that
            // serves all connections of the peer.
            error @ ProcessError::Ended { .. } => {
                let peer = job.remote.extent.owner.to_string();
                AgentError::PeerLost { peer, why: error.to_string() }
            }
            error => job.failed(&error),
        })
    }
}

struct Batch<'a> {
    path: &'a ProcessCopy,
    direction: Direction,
    job: &'a Job,
    local: &'a Region,
    pieces: Vec<ProcessPiece>,
    bytes: u64,
}

impl Batch<'_> {
    fn push(&mut self, piece: ProcessPiece, limit: &Limit<'_>) -> Result<(), AgentError> {
        if self.pieces.len() == BATCH || self.bytes + piece.len > STEP {
            self.flush()?;
            limit.check()?;
        }
        self.bytes += piece.len;
        self.pieces.push(piece);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), AgentError> {
        self.copy(&self.pieces)?;
        self.job.advance(self.bytes);
        self.pieces.clear();
        self.bytes = 0;
        Ok(())
    }

    fn copy(&self, pieces: &[ProcessPiece]) -> Result<(), AgentError> {
        self.path.transfer(self.direction, self.job, self.local, pieces)
    }
}

/// To memory of the peer that it has proven to have. The connection that brought the proof is also the one
/// by which the peer takes its memory back.
pub(crate) fn process_copy(
    (copying, bounces): (&Copying, &Bounces),
    local: &LocalMemory,
    remote: &PeerMemory,
    proven: impl FnOnce() -> Result<Arc<Proven>, AgentError>,
) -> Found {
    let no = |why: String| vec![why];
    let held = local.hold().map_err(|error| no(error.to_string()))?;
    let (kind, place) = (local.kind, remote.info.place);
    let reached = kind == Kind::Host || held.region().copier().is_some();
    if place != Place::Host || !reached {
        return Err(no(format!("from {kind} memory to {place}")));
    }
    let proven = proven().map_err(|error| no(error.to_string()))?;
    let process = proven.process.clone().map_err(no)?;
    let bounce = bounces.get(copying, held.region());
    let bounce = bounce.map_err(|error| no(format!("the bounce buffer: {error}")))?;
    let by = bounce.as_ref().map_or("", |bounce| bounce.explain()).to_owned();
    let base = remote.info.addr;
    Ok((Box::new(ProcessCopy { process, base, bounce }), by))
}
