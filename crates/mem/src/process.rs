//! Memory of another process, copied by the kernel (`process_vm_readv`, `process_vm_writev`).
//!
//! A process that executes another program keeps its number, and a pidfd of it stays valid. The kernel looks
//! up the number in each call, so a copy by it would go on in the new program, at addresses of the old
//! one. Looking before and after a call leaves the time between the look and the call. So a process is
//! named by the number of one of its threads, not the first: when another program is executed, all
//! threads end and the first one's number alone is used again. The kernel then finds no thread, or, if it
//! has found it before, copies in the old memory, which it keeps for the call.
//!
//! A thread's number may be given away like any other, once all others have had their turn. That is seen by
//! the thread's folder in `/proc`, looked at before and after a copy.
//!
//! `/proc/PID/mem` would hold on to the old memory as well. It is not used: writing by it ignores that pages
//! are read-only, each block of a list takes a call of its own, and bytes go by way of a page of the
//! kernel's: 1 MiB takes twice as long, 512 blocks of 512 bytes 2.5 times.
//!
//! Left open: a thread that executes another program itself, between two instructions of a call that has just
//! found it. The thread that leaves a [proof](crate::Proof) is to be one that does not.

mod thread;

pub use thread::same_user;

use crate::{Kind, MemError, ProofPlace, Region, SmallBuf};
use arrayvec::ArrayVec;
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;
use thiserror::Error;
use thread::Thread;

/// Pieces that one system call moves at most; the kernel takes up to 1024.
const BATCH: usize = 512;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the other process to this one.
    Read,
    /// From this process to the other one.
    Write,
}

/// Bytes to be moved between a region of this process and an address of another.
#[derive(Clone, Copy, Debug)]
pub struct ProcessPiece {
    /// Where in the region, bytes.
    pub offset: u64,
    /// Where in the other process.
    pub remote: u64,
    /// How many bytes.
    pub len: u64,
}

/// Why the memory of another process is not reached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ProcessError {
    /// A process copies its own memory by itself: the kernel would write there past all checks.
    #[error("process {pid} is this one")]
    Own { pid: u32 },
    /// The number is that of the process itself, which another program that it executes would keep.
    #[error(
        "thread {pid} is the first of its process and outlives its memory, expected another thread"
    )]
    FirstThread { pid: u32 },
    /// `/proc` is missing or that of another PID namespace, so nothing is known of any process.
    #[error("/proc does not show the processes of this PID namespace")]
    OtherNumbers,
    /// It acts for another user than this process, which may reach it by privilege alone.
    #[error("process {pid} is another user's")]
    OtherUser { pid: u32 },
    /// The kernel refuses, as a rule for want of the right to trace that process.
    #[error("the kernel copies nothing from or to process {pid}: {errno}")]
    Refused { pid: u32, errno: Errno },
    /// The process may be read and not written.
    #[error("the kernel writes nothing to process {pid}, though it reads there: {errno}")]
    WriteRefused { pid: u32, errno: Errno },
    /// The process of that number has something else where its proof should be: it is another
    /// process, or one of another PID namespace.
    #[error("process {pid} is not the expected one: its proof is wrong")]
    WrongProof { pid: u32 },
    /// The proof is where others can have left it.
    #[error(
        "process {pid} has its proof in memory that other processes may write or share, \
         expected private read-only memory without a file"
    )]
    SharedProof { pid: u32 },
    /// The thread that it is reached by has ended, as all do when it ends or executes another program.
    /// The numbers may be another's by now, so nothing is known of the bytes.
    #[error(
        "the thread of process {pid} that gave its proof has ended, as when a process ends or executes \
         another program"
    )]
    Ended { pid: u32 },
    /// The own side is out of bounds or not host memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// For this time after a thread was seen to run, in nanoseconds, its number cannot belong to another:
/// numbers are given in turn, and no system makes that many threads in a millisecond. Two system calls
/// for each copy would nearly double the time of 8 bytes.
const FRESH_NS: u64 = 1_000_000;

/// Another process, as long as it executes the program that it executes now.
///
/// [`Process::prove`] finds out whose process it is. Writes to it, and their times, are between the
/// two: the other process must keep memory in place as long as it has told this one that it may be
/// written.
#[derive(Debug)]
pub struct Process {
    thread: Thread,
    descriptor: OwnedFd,
    opened: Instant,
    /// When the thread was last seen to run, in nanoseconds since it was opened.
    seen: AtomicU64,
}

impl Process {
    /// The process that has the number `pid` now, by its thread of the number `thread`
    /// ([`ProofPlace::thread`]). Nothing of it is touched.
    ///
    /// # Errors
    /// It is this process, or another user's, there is none of that number, or the thread is not one of
    /// its, or its first.
    pub fn open(pid: u32, thread: u32) -> Result<Self, ProcessError> {
        let own = ProcessError::Own { pid };
        let number = libc::pid_t::try_from(pid).map_err(|_| own.clone())?;
        let opened = Instant::now();
        // The kernel takes the number of any thread for that of its process.
        let own_pid = std::process::id();
        // SAFETY: signal 0 is only checked for, never sent.
        let is_own = unsafe { libc::syscall(libc::SYS_tgkill, own_pid, number, 0) };
        if number <= 0 || is_own == 0 {
            return Err(own);
        }
        let thread = Thread::open(pid, thread)?;
        if !thread.is_of_this_user()? {
            return Err(ProcessError::OtherUser { pid });
        }
        // SAFETY: two integers. The descriptor closes when another program is executed.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        let Ok(descriptor @ 0..) = i32::try_from(descriptor) else {
            return Err(ProcessError::Refused { pid, errno: Errno::last() });
        };
        // SAFETY: the kernel has just made it for this call.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let process = Self { thread, descriptor, opened, seen: AtomicU64::new(0) };
        // The thread still runs, so the descriptor is that of its process.
        process.check().map(|()| process)
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Whether this is the process that has `proof` at `place`, as [`Proof`](crate::Proof) puts it, and
    /// the kernel copies both ways: `word` is written to the word there.
    ///
    /// # Errors
    /// The kernel refuses to read or to write, the bytes are others, others than the process can have
    /// written them, or it has ended.
    pub fn prove(
        &self,
        place: &ProofPlace,
        proof: &[u8; 32],
        word: u64,
    ) -> Result<(), ProcessError> {
        let pid = self.pid();
        let found = SmallBuf::region(proof.len());
        let all = [ProcessPiece { offset: 0, remote: place.proof, len: proof.len() as u64 }];
        self.copy(Direction::Read, &found, &all)?;
        let mut bytes = [0; 32];
        found.read(0, &mut bytes)?;
        if bytes != *proof {
            return Err(ProcessError::WrongProof { pid });
        }
        if !self.thread.keeps(place.proof, proof.len() as u64)? {
            return Err(ProcessError::SharedProof { pid });
        }
        let own = SmallBuf::of(&word.to_ne_bytes());
        let one = [ProcessPiece { offset: 0, remote: place.word, len: 8 }];
        self.copy(Direction::Write, &own, &one).map_err(may_not_write)?;
        let back = SmallBuf::region(8);
        self.copy(Direction::Read, &back, &one)?;
        let mut bytes = [0; 8];
        back.read(0, &mut bytes)?;
        match u64::from_ne_bytes(bytes) == word {
            true => Ok(()),
            false => Err(ProcessError::WrongProof { pid }),
        }
    }

    /// Whether it still runs, and the same program.
    ///
    /// # Errors
    /// It has ended, or executed another program.
    pub fn check(&self) -> Result<(), ProcessError> {
        self.thread.check()
    }

    /// Whether this is the thread that it is reached by.
    pub fn is_by(&self, thread: u32) -> bool {
        self.thread.number.unsigned_abs() == thread
    }

    /// The same before and after copies, without a system call if it was seen to run just now.
    fn check_again(&self) -> Result<(), ProcessError> {
        // Before the check, so that a thread that is stopped in between checks again.
        let now = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if now - self.seen.load(Ordering::Relaxed).min(now) < FRESH_NS {
            return Ok(());
        }
        self.check()?;
        self.seen.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.thread.pid
    }

    /// Moves `pieces` in order between `region` and that process. When this returns, all bytes are
    /// in place.
    ///
    /// # Errors
    /// A piece is outside of `region`, the process has nothing mapped there, or it has ended before or
    /// during the call. Pieces before the one that failed have been moved.
    pub fn copy(
        &self,
        direction: Direction,
        region: &Region,
        pieces: &[ProcessPiece],
    ) -> Result<(), ProcessError> {
        if region.kind() != Kind::Host {
            return Err(MemError::NotHost { addr: region.addr() }.into());
        }
        for batch in pieces.chunks(BATCH) {
            let mut local = ArrayVec::<_, BATCH>::new();
            let mut remote = ArrayVec::<_, BATCH>::new();
            for piece in batch {
                let len = usize::try_from(piece.len).unwrap_or(usize::MAX);
                let addr = region.range(piece.offset, len)?;
                local.push(libc::iovec { iov_base: addr as *mut _, iov_len: len });
                remote.push(libc::iovec { iov_base: piece.remote as *mut _, iov_len: len });
            }
            self.check_again()?;
            if let Err(error) = self.all(direction, &mut local, &mut remote) {
                return Err(self.check().err().unwrap_or(error));
            }
        }
        // The number was that of this thread all the time.
        self.check_again()?;
        // Orders the bytes before whatever announces them.
        fence(Ordering::Release);
        Ok(())
    }

    /// Repeats the call until all is moved: the kernel may stop early. All of `local` is host
    /// memory of regions that the caller holds.
    fn all(
        &self,
        direction: Direction,
        mut local: &mut [libc::iovec],
        mut remote: &mut [libc::iovec],
    ) -> Result<(), ProcessError> {
        loop {
            while let [first, ..] = local
                && first.iov_len == 0
            {
                local = &mut std::mem::take(&mut local)[1..];
                remote = &mut std::mem::take(&mut remote)[1..];
            }
            if local.is_empty() {
                return Ok(());
            }
            let (count, to, from) = (local.len() as u64, local.as_ptr(), remote.as_ptr());
            let moved = match direction {
                // SAFETY: `count` vectors each; the local ones are inside a region, which is host
                // memory that the caller holds; the others are of another process.
                Direction::Read => unsafe {
                    libc::process_vm_readv(self.thread.number, to, count, from, count, 0)
                },
                // SAFETY: as above.
                Direction::Write => unsafe {
                    libc::process_vm_writev(self.thread.number, to, count, from, count, 0)
                },
            };
            let Ok(mut moved) = usize::try_from(moved) else {
                let pid = self.pid();
                return Err(match Errno::last() {
                    // A process that is ending has given its memory up before its threads are gone.
                    Errno::ESRCH => ProcessError::Ended { pid },
                    errno => ProcessError::Refused { pid, errno },
                });
            };
            for (here, there) in local.iter_mut().zip(remote.iter_mut()) {
                let step = moved.min(here.iov_len);
                for vector in [here, there] {
                    vector.iov_base = vector.iov_base.wrapping_byte_add(step);
                    vector.iov_len -= step;
                }
                moved -= step;
                if moved == 0 {
                    break;
                }
            }
        }
    }
}

/// Error of a write to a process that may be read.
fn may_not_write(error: ProcessError) -> ProcessError {
    match error {
        ProcessError::Refused { pid, errno } => ProcessError::WriteRefused { pid, errno },
        other => other,
    }
}

#[cfg(test)]
mod tests;
