//! The kernel copies from process to process (`process_vm_readv`, `process_vm_writev`); memory of a GPU
//! here goes through a [bounce buffer](super::bounce).

use super::bounce::Bounce;
use super::direct::failed;
use super::{Attempt, Limit, Pair, Path, PathKind, Started};
use crate::peer::Peer;
use crate::prepared::Part;
use crate::proof;
use crate::{AgentError, Op};
use std::sync::Arc;
use warpverbs_mem::{Direction, Kind, Process, ProcessError, ProcessPiece, Region};
use warpverbs_peer::Reason;

/// Bytes between two looks at whether the transfer is to go on.
const STEP: u64 = 4 << 20;
/// Pieces that are handed over at a time.
const BATCH: usize = 512;

struct ProcessCopy {
    process: Arc<Process>,
    /// Where the peer's memory begins in its process.
    base: u64,
    /// Where a device copies the local side.
    bounce: Option<Bounce>,
}

impl Path for ProcessCopy {
    fn start(
        &self,
        op: Op,
        peer: &Arc<Peer>,
        part: &Arc<Part>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let direction = match op {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
        };
        // The peer keeps its memory in place until this process has agreed that it is deregistered,
        // which it does only while there is no lease.
        let _lease = part.remote.lease(peer)?;
        if let Some(bounce) = &self.bounce {
            let transfer = |memory: &Region, pieces: &[ProcessPiece]| {
                self.transfer(direction, part, memory, pieces)
            };
            bounce.run(op, part, self.base, limit, transfer)?;
            return Ok(Started::Done);
        }
        let mut batch = Batch { path: self, direction, part, pieces: Vec::new(), bytes: 0 };
        if let [piece] = &part.pieces[..]
            && piece.len <= STEP
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
                batch.push(next, limit)?;
                done += step;
            }
        }
        batch.flush()?;
        Ok(Started::Done)
    }
}

impl ProcessCopy {
    fn piece(&self, offset: u64, remote: u64, len: u64) -> ProcessPiece {
        ProcessPiece { offset, remote: self.base + remote, len }
    }

    fn transfer(
        &self,
        direction: Direction,
        part: &Part,
        local: &Region,
        pieces: &[ProcessPiece],
    ) -> Result<(), AgentError> {
        self.process.copy(direction, local, pieces).map_err(|error| match error {
            ProcessError::Memory(error) => error.into(),
            // Of a process that has just ended this is the first sign.
            error => failed(part, &error),
        })
    }
}

struct Batch<'a> {
    path: &'a ProcessCopy,
    direction: Direction,
    part: &'a Part,
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
        self.pieces.clear();
        self.bytes = 0;
        Ok(())
    }

    fn copy(&self, pieces: &[ProcessPiece]) -> Result<(), AgentError> {
        self.path.transfer(self.direction, self.part, self.part.local.region(), pieces)
    }
}

pub(super) fn process_copy(pair: &Pair<'_>) -> Attempt {
    let no = |why: String| vec![Reason::new(PathKind::ProcessCopy.to_string(), why)];
    proof::may_copy(pair.agent, pair.peer).map_err(no)?;
    let local = pair.local.region();
    let reached = local.kind() == Kind::Host || local.copier().is_some();
    if pair.remote.info.place != Kind::Host.into() || !reached {
        return Err(no(format!("from {} memory to {}", local.kind(), pair.remote.info.place)));
    }
    // The connection that brings it is also the one by which the peer takes its memory back.
    let proven = pair.remote.proven(pair.agent, pair.peer, pair.until);
    let proven = proven.map_err(|error| no(error.to_string()))?;
    let process = proven.process().map_err(no)?.clone();
    let bounce = Bounce::new(pair).map_err(|error| no(format!("the bounce buffer: {error}")))?;
    let by = bounce.as_ref().map_or("", Bounce::explain).to_owned();
    let base = pair.remote.info.addr;
    Ok((Box::new(ProcessCopy { process, base, bounce }), by))
}
