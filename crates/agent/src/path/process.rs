//! The kernel copies from process to process (`process_vm_readv`, `process_vm_writev`).

use super::{Attempt, Pair, Path, PathKind, Started};
use crate::peer::Peer;
use crate::prepared::Part;
use crate::{AgentError, Op};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_mem::{Direction, Kind, Process, ProcessError, ProcessPiece};
use warpverbs_peer::Reason;

/// Bytes between two looks at whether the transfer was cancelled.
const STEP: u64 = 4 << 20;
/// Pieces that are handed over at a time.
const BATCH: usize = 512;

struct ProcessCopy {
    process: Process,
    /// Where the peer's memory begins in its process.
    base: u64,
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
                batch.push(next, cancel)?;
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
}

struct Batch<'a> {
    path: &'a ProcessCopy,
    direction: Direction,
    part: &'a Part,
    pieces: Vec<ProcessPiece>,
    bytes: u64,
}

impl Batch<'_> {
    fn push(&mut self, piece: ProcessPiece, cancel: &AtomicBool) -> Result<(), AgentError> {
        self.bytes += piece.len;
        self.pieces.push(piece);
        if self.pieces.len() < BATCH && self.bytes < STEP {
            return Ok(());
        }
        self.flush()?;
        match cancel.load(Ordering::Relaxed) {
            true => Err(AgentError::Cancelled),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), AgentError> {
        let pieces = std::mem::take(&mut self.pieces);
        self.copy(&pieces)?;
        self.pieces = pieces;
        self.pieces.clear();
        self.bytes = 0;
        Ok(())
    }

    fn copy(&self, pieces: &[ProcessPiece]) -> Result<(), AgentError> {
        let moved = self.path.process.copy(self.direction, self.part.local.region(), pieces);
        moved.map_err(|error| match error {
            ProcessError::Memory(error) => error.into(),
            // Of a process that has just ended this is the first sign.
            error => AgentError::Path {
                path: PathKind::ProcessCopy,
                peer: self.part.remote.extent.owner.to_string(),
                cause: error.to_string(),
            },
        })
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
    let local = pair.local.region().kind();
    if local != Kind::Host || pair.remote.info.place != Kind::Host.into() {
        return Err(no(format!("from {local} memory to {}", pair.remote.info.place)));
    }
    pair.agent
        .connect(pair.peer, pair.agent.config.deadline)
        .map_err(|error| no(error.to_string()))?;
    let process = Process::attach(theirs.pid, peer.proof_addr, &peer.proof);
    let process = process.map_err(|error| no(error.to_string()))?;
    Ok((Box::new(ProcessCopy { process, base: pair.remote.info.addr }), String::new()))
}
