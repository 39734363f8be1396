//! Transfers between memory and files.

use super::descriptor::{Descriptor, Descriptors};
use super::error::FileError;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use warpverbs_mem::{FileBatch, FileFailure, FileIoError, FileOp, FileQueue, FileRequest};
use warpverbs_mem::{MemError, Region};

/// A range of memory, and the range of a file that belongs to it.
#[derive(Clone, Debug)]
pub struct FilePiece {
    /// The memory, of the host or of a GPU.
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

/// What a transfer is to do.
pub(super) struct Plan {
    op: FileOp,
    requests: Vec<FileRequest>,
    /// The program's number for the file of each request.
    numbers: Vec<i32>,
    /// By the program's numbers.
    files: HashMap<i32, Descriptor>,
}

impl Plan {
    pub(super) fn new(op: FileOp) -> Self {
        Self { op, requests: Vec::new(), numbers: Vec::new(), files: HashMap::new() }
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
        if len == 0 || self.extends(&memory, at, fd, offset, len) {
            return Ok(());
        }
        self.requests.push(FileRequest { op: self.op, memory, at, file, offset, len });
        self.numbers.push(fd);
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

    /// Makes the last request longer by a piece that begins where it ends, in memory and in the file. The
    /// memory of the request has all of it then, whoever owns that of the piece.
    fn extends(&mut self, memory: &Region, at: u64, fd: i32, offset: u64, len: u64) -> bool {
        let (Some(last), Some(&number)) = (self.requests.last_mut(), self.numbers.last()) else {
            return false;
        };
        let follows = number == fd
            && last.offset + last.len == offset
            && last.memory.kind() == memory.kind()
            && last.memory.addr() + last.at + last.len == memory.addr() + at;
        let all = usize::try_from(last.len + len);
        if follows && all.is_ok_and(|all| last.memory.range(last.at, all).is_ok()) {
            last.len += len;
            return true;
        }
        false
    }
}

/// A transfer between memory and files. It may be posted again when it is over. Dropping it cancels what has
/// not begun and waits for the rest, as [`FileBatch`] does.
#[derive(Debug)]
pub struct FileTransfer {
    /// Before the queue, which ends with the last transfer.
    phase: Mutex<Phase>,
    requests: Arc<[FileRequest]>,
    numbers: Box<[i32]>,
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
        let Plan { requests, numbers, .. } = plan;
        let phase = Mutex::new(Phase::Fresh);
        Self { phase, requests: requests.into(), numbers: numbers.into(), queue }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        self.requests.iter().map(|request| request.len).sum()
    }

    /// Ranges that it moves, after neighbours became one.
    pub fn operations(&self) -> usize {
        self.requests.len()
    }

    /// Starts it, and returns at once.
    ///
    /// # Errors
    /// It is in progress, or the system refuses.
    pub fn post(&self) -> Result<(), FileError> {
        let mut phase = self.phase();
        if let Phase::Posted(batch) = &*phase
            && batch.poll().is_none()
        {
            return Err(FileError::InProgress);
        }
        match self.queue.submit(self.requests.clone()) {
            Ok(batch) => {
                *phase = Phase::Posted(Arc::new(batch));
                Ok(())
            }
            Err(failure) => {
                let error = self.error(failure);
                *phase = Phase::Refused(error.clone());
                Err(error)
            }
        }
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

    /// Begins nothing more. What has begun goes on, so it is over when [`poll`](Self::poll) says so.
    pub fn cancel(&self) {
        if let Phase::Posted(batch) = &*self.phase() {
            batch.cancel();
        }
    }

    fn error(&self, failure: FileFailure) -> FileError {
        let FileFailure { request, error } = failure;
        match (error, request.and_then(|request| self.numbers.get(request))) {
            (FileIoError::Stopped, _) => FileError::Cancelled,
            (error, Some(&fd)) => FileError::Io { fd, error },
            (error, None) => FileError::Engine(error),
        }
    }
}
