//! Transfers between memory and files.

use super::descriptor::{Descriptor, Descriptors};
use super::error::FileError;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use warpverbs_mem::{FileBatch, FileFailure, FileIoError, FileOp, FileQueue, FileRequest};
use warpverbs_mem::{Kind, MemError, Region, WeakRegion};

/// A range of memory, and the range of a file that belongs to it.
#[derive(Clone, Debug)]
pub struct FilePiece {
    /// The memory, of the host or of a GPU. Somebody else is to keep it until the transfer is posted.
    pub memory: Region,
    /// Where in the memory, bytes.
    pub at: u64,
    /// The number of the open file.
    pub fd: i32,
    /// Where in the file, bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// A range of a transfer. The file is kept, and the memory only while it is on its way.
#[derive(Debug)]
struct Range {
    /// Place of its first piece in the program's list.
    piece: usize,
    memory: WeakRegion,
    /// Where the memory begins, and its length.
    place: (u64, u64),
    kind: Kind,
    at: u64,
    fd: i32,
    file: Arc<OwnedFd>,
    offset: u64,
    len: u64,
}

/// All that a transfer is to do.
pub(super) struct Plan {
    op: FileOp,
    ranges: Vec<Range>,
    /// By the program's numbers.
    files: HashMap<i32, Descriptor>,
}

impl Plan {
    pub(super) fn new(op: FileOp) -> Self {
        Self { op, ranges: Vec::new(), files: HashMap::new() }
    }

    /// Adds a piece, to the last one if it goes on there.
    pub(super) fn add(
        &mut self,
        index: usize,
        piece: FilePiece,
        descriptors: &Descriptors,
    ) -> Result<(), FileError> {
        let FilePiece { memory, at, fd, offset, len } = piece;
        let wrong = |error| FileError::Memory { piece: index, error };
        let outside = MemError::OutOfBounds { offset: at, len, region_len: memory.len() as u64 };
        let size = usize::try_from(len).map_err(|_| wrong(outside))?;
        memory.range(at, size).map_err(wrong)?;
        if offset.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(FileError::Offset { piece: index, offset, len });
        }
        let file = self.file(fd, descriptors)?;
        let place = (memory.addr(), memory.len() as u64);
        let (kind, memory) = (memory.kind(), memory.downgrade());
        let next = Range { piece: index, memory, place, kind, at, fd, file, offset, len };
        match self.ranges.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.goes_on_with(&next) => last.len += len,
            _ => self.ranges.push(next),
        }
        Ok(())
    }

    /// The file of a number: that of the first piece with it, for the whole transfer.
    fn file(&mut self, fd: i32, descriptors: &Descriptors) -> Result<Arc<OwnedFd>, FileError> {
        let found = match self.files.entry(fd) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(descriptors.take(fd)?),
        };
        found.allows(self.op)?;
        Ok(found.file.clone())
    }
}

impl Range {
    /// Whether `next` begins where this ends, in memory and in the file, and this one's memory has all of
    /// it, whoever owns that of `next`.
    fn goes_on_with(&self, next: &Self) -> bool {
        let (start, size) = self.place;
        self.fd == next.fd
            && self.kind == next.kind
            && self.offset + self.len == next.offset
            && start + self.at + self.len == next.place.0 + next.at
            && next.len <= size - self.at - self.len
    }
}

/// A transfer between memory and files. It may be posted again when it is over. Memory is kept while it is in
/// progress, and not before or afterwards: its owner may free it then. Dropping it cancels what has
/// not begun and waits for the rest, as [`FileBatch`] does.
#[derive(Debug)]
pub struct FileTransfer {
    /// Before the queue, which ends with the last transfer.
    phase: Mutex<Phase>,
    op: FileOp,
    ranges: Box<[Range]>,
    queue: Arc<FileQueue>,
}

#[derive(Debug)]
enum Phase {
    Fresh,
    Posted(Arc<FileBatch>),
    /// It could not be posted.
    Refused(FileError),
}

impl FileTransfer {
    pub(super) fn new(plan: Plan, queue: Arc<FileQueue>) -> Self {
        let Plan { op, ranges, .. } = plan;
        Self { phase: Mutex::new(Phase::Fresh), op, ranges: ranges.into(), queue }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.len).sum()
    }

    /// Ranges that it moves, after neighbours became one.
    pub fn operations(&self) -> usize {
        self.ranges.len()
    }

    /// Starts it, and returns at once.
    ///
    /// # Errors
    /// It is in progress, memory of it is not there any more, or the system refuses.
    pub fn post(&self) -> Result<(), FileError> {
        let mut phase = self.phase();
        if let Phase::Posted(batch) = &*phase
            && batch.poll().is_none()
        {
            return Err(FileError::InProgress);
        }
        let submit = |requests| self.queue.submit(requests).map_err(|failure| self.error(failure));
        match self.requests().and_then(submit) {
            Ok(batch) => {
                *phase = Phase::Posted(Arc::new(batch));
                Ok(())
            }
            Err(error) => {
                *phase = Phase::Refused(error.clone());
                Err(error)
            }
        }
    }

    /// The list for the queue: with all of the memory, if it is still there.
    fn requests(&self) -> Result<Arc<[FileRequest]>, FileError> {
        let request = |range: &Range| {
            let Range { piece, at, offset, len, .. } = *range;
            let memory = range.memory.upgrade().ok_or(FileError::Gone { piece })?;
            Ok(FileRequest { op: self.op, memory, at, file: range.file.clone(), offset, len })
        };
        self.ranges.iter().map(request).collect()
    }

    /// The result, once it is over: no byte is moved afterwards, and the result stays. Never blocks.
    pub fn poll(&self) -> Option<Result<(), FileError>> {
        match &*self.phase() {
            Phase::Fresh => Some(Err(FileError::NotPosted)),
            Phase::Posted(batch) => batch.poll().map(|result| result.map_err(|f| self.error(f))),
            Phase::Refused(error) => Some(Err(error.clone())),
        }
    }

    /// Waits for the result, at most that long.
    pub fn wait(&self, most: Duration) -> Option<Result<(), FileError>> {
        let batch = match &*self.phase() {
            Phase::Posted(batch) => batch.clone(),
            Phase::Fresh => return Some(Err(FileError::NotPosted)),
            Phase::Refused(error) => return Some(Err(error.clone())),
        };
        batch.wait(most).map(|result| result.map_err(|failure| self.error(failure)))
    }

    /// Begins nothing more. Operations that have begun go on: it is over when [`poll`](Self::poll) says so.
    pub fn cancel(&self) {
        if let Phase::Posted(batch) = &*self.phase() {
            batch.cancel();
        }
    }

    fn error(&self, failure: FileFailure) -> FileError {
        let FileFailure { request, error } = failure;
        match (error, request.and_then(|request| self.ranges.get(request))) {
            (FileIoError::Stopped, _) => FileError::Cancelled,
            (error, Some(range)) => FileError::Io { fd: range.fd, error },
            (error, None) => FileError::Engine(error),
        }
    }
}
