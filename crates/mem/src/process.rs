//! Memory of another process, copied by the kernel (`process_vm_readv`, `process_vm_writev`).

use crate::{Kind, MemError, ProofPlace, Region, SmallBuf};
use arrayvec::ArrayVec;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;
use thiserror::Error;

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
pub enum ProcessError {
    /// A process copies its own memory by itself: the kernel would write there past all checks.
    #[error("process {pid} is this one")]
    Own {
        /// The number.
        pid: u32,
    },
    /// The kernel refuses, as a rule for want of the right to trace that process.
    #[error("the kernel copies nothing from or to process {pid}: {errno}")]
    Refused {
        /// The number.
        pid: u32,
        /// The kernel's error.
        errno: Errno,
    },
    /// The process may be read and not written.
    #[error("the kernel writes nothing to process {pid}, though it reads there: {errno}")]
    WriteRefused {
        /// The number.
        pid: u32,
        /// The kernel's error.
        errno: Errno,
    },
    /// The process of that number has something else where its proof should be: it is another
    /// process, or one of another PID namespace.
    #[error("process {pid} is not the expected one: its proof is wrong")]
    WrongProof {
        /// The number.
        pid: u32,
    },
    /// The proof is where others can have left it.
    #[error("process {pid} has its proof in memory that others may write, which proves nothing")]
    WritableProof {
        /// The number.
        pid: u32,
    },
    /// The process has ended. The number may be another's by now, so nothing is known of the bytes.
    #[error("process {pid} has ended")]
    Ended {
        /// The number.
        pid: u32,
    },
    /// The own side is out of bounds or not host memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// So long after a process was seen to run, its number is no other's, in nanoseconds: numbers are given
/// in turn, and no system makes that many processes in a millisecond. Two system calls for each copy
/// would nearly double the time of 8 bytes.
const FRESH_NS: u64 = 1_000_000;

/// Another process, by its number and by a descriptor of it: a number is given to another process when
/// the first has ended, a descriptor stays that of the first.
///
/// [`Process::prove`] finds out whose process it is. Writes to it, and their times, are between the
/// two: the other process must keep memory in place as long as it has told this one that it may be
/// written.
#[derive(Debug)]
pub struct Process {
    pid: libc::pid_t,
    descriptor: OwnedFd,
    opened: Instant,
    /// When it was last seen to run, in nanoseconds since it was opened.
    seen: AtomicU64,
}

impl Process {
    /// The process that has the number `pid` now. Nothing of it is touched.
    ///
    /// # Errors
    /// It is this process, or there is none of that number.
    pub fn open(pid: u32) -> Result<Self, ProcessError> {
        let own = ProcessError::Own { pid };
        let number = libc::pid_t::try_from(pid).map_err(|_| own.clone())?;
        let opened = Instant::now();
        // The kernel takes the number of any thread for that of its process.
        let own_pid = std::process::id();
        // SAFETY: signal 0 is only checked for, never sent.
        let thread = unsafe { libc::syscall(libc::SYS_tgkill, own_pid, number, 0) };
        if number <= 0 || thread == 0 {
            return Err(own);
        }
        // SAFETY: two integers. The descriptor closes when another program is executed.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        let Ok(descriptor @ 0..) = i32::try_from(descriptor) else {
            return Err(ProcessError::Refused { pid, errno: Errno::last() });
        };
        // SAFETY: the kernel has just made it for this call.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { pid: number, descriptor, opened, seen: AtomicU64::new(0) })
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Whether this is the process that has `proof` at `place`, as [`Proof`](crate::Proof) puts it, and
    /// the kernel copies both ways: `word` is written to the word there.
    ///
    /// # Errors
    /// The kernel refuses to read or to write, the bytes are others, others may write them, or the
    /// process has ended.
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
        // The same bytes, so nothing changes where they may be written after all.
        match self.copy(Direction::Write, &found, &all) {
            Err(ProcessError::Refused { errno: Errno::EFAULT, .. }) => {}
            Ok(()) => return Err(ProcessError::WritableProof { pid }),
            Err(error) => return Err(may_not_write(error)),
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

    /// Whether it still runs.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&self) -> Result<(), ProcessError> {
        let events = libc::POLLIN;
        let mut one = libc::pollfd { fd: self.descriptor.as_raw_fd(), events, revents: 0 };
        // SAFETY: one entry, which lives during the call.
        match unsafe { libc::poll(&raw mut one, 1, 0) } {
            0 => Ok(()),
            _ => Err(ProcessError::Ended { pid: self.pid() }),
        }
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
        self.pid.unsigned_abs()
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
        // The number was this process's all the time.
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
                    libc::process_vm_readv(self.pid, to, count, from, count, 0)
                },
                // SAFETY: as above.
                Direction::Write => unsafe {
                    libc::process_vm_writev(self.pid, to, count, from, count, 0)
                },
            };
            let Ok(mut moved) = usize::try_from(moved) else {
                return Err(ProcessError::Refused { pid: self.pid(), errno: Errno::last() });
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
mod tests {
    use super::*;
    use crate::{HostBuf, Proof};
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    const PROOF: [u8; 32] = *b"thirty-two bytes that are random";
    const LEN: usize = 3 << 20;

    /// The part of another process: prints where its memory and its proof are and, asked by a line,
    /// its sum.
    #[test]
    fn other_process() {
        if std::env::var_os("MEM_OTHER_PROCESS").is_none() {
            return;
        }
        let memory = HostBuf::region(LEN).unwrap();
        memory.write(0, &PROOF).unwrap();
        let proof = Proof::new(&PROOF).unwrap();
        println!("\n> {}", memory.addr());
        println!("\n> {}", proof.place().proof);
        println!("\n> {}", proof.place().word);
        std::io::stdin().read_exact(&mut [0]).unwrap();
        let mut bytes = vec![0; LEN];
        memory.read(0, &mut bytes).unwrap();
        println!("\n> {}", sum(&bytes));
    }

    fn start() -> (Child, u64, ProofPlace) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::tests::other_process", "--nocapture"])
            .env("MEM_OTHER_PROCESS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let base = answer(&mut child);
        let place = ProofPlace { proof: answer(&mut child), word: answer(&mut child) };
        (child, base, place)
    }

    fn sum(bytes: &[u8]) -> u64 {
        bytes.iter().fold(1, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }

    fn answer(child: &mut Child) -> u64 {
        let mut text = String::new();
        let mut byte = [0];
        let out = child.stdout.as_mut().unwrap();
        loop {
            out.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
            match text.strip_suffix('\n').and_then(|line| line.rsplit_once("> ")) {
                Some((_, number)) => return number.parse().unwrap(),
                None => continue,
            }
        }
    }

    #[test]
    fn bytes_go_to_another_process_and_back() {
        let (mut child, base, place) = start();
        let process = Process::open(child.id()).unwrap();
        let pid = child.id();
        let beside = ProofPlace { proof: place.proof + 1, ..place };
        let wrong = process.prove(&beside, &PROOF, 7);
        assert_eq!(wrong, Err(ProcessError::WrongProof { pid }));
        // The same bytes, where any process that may write the memory could have put them.
        let planted = ProofPlace { proof: base, ..place };
        let refused = process.prove(&planted, &PROOF, 7);
        assert_eq!(refused, Err(ProcessError::WritableProof { pid }));
        let no_word = process.prove(&ProofPlace { word: place.proof, ..place }, &PROOF, 7);
        assert_eq!(no_word, Err(ProcessError::WriteRefused { pid, errno: Errno::EFAULT }));
        process.prove(&place, &PROOF, 7).unwrap();

        let own = HostBuf::region(LEN).unwrap();
        let mut expected = vec![0; LEN];
        expected[..PROOF.len()].copy_from_slice(&PROOF);
        // More pieces than one call takes, of odd lengths, in reverse.
        let piece = |i: u64| ProcessPiece { offset: i * 1000, remote: base + 999 * i, len: 1 + i };
        let pieces: Vec<_> = (1..=600).rev().map(piece).collect();
        for piece in &pieces {
            let bytes: Vec<u8> = (0..piece.len).map(|i| (i * 7 + piece.offset) as u8).collect();
            own.write(piece.offset, &bytes).unwrap();
        }
        for piece in &pieces {
            let mut bytes = vec![0; piece.len as usize];
            own.read(piece.offset, &mut bytes).unwrap();
            let at = (piece.remote - base) as usize;
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        process.copy(Direction::Write, &own, &pieces).unwrap();

        let back = HostBuf::region(LEN).unwrap();
        let whole = ProcessPiece { offset: 0, remote: base, len: LEN as u64 };
        process.copy(Direction::Read, &back, &[whole]).unwrap();
        let mut seen = vec![0; LEN];
        back.read(0, &mut seen).unwrap();
        assert!(seen == expected);

        let outside = ProcessPiece { offset: 8, ..whole };
        let refused = process.copy(Direction::Read, &back, &[outside]);
        assert!(matches!(refused, Err(ProcessError::Memory(MemError::OutOfBounds { .. }))));
        let unmapped = ProcessPiece { offset: 0, remote: 8, len: 8 };
        let refused = process.copy(Direction::Write, &own, &[unmapped]);
        assert!(matches!(refused, Err(ProcessError::Refused { errno: Errno::EFAULT, .. })));

        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(answer(&mut child), sum(&expected));
        assert!(child.wait().unwrap().success());
        let gone = process.copy(Direction::Read, &back, &[whole]);
        assert_eq!(gone, Err(ProcessError::Ended { pid }));
    }

    #[cfg(feature = "test-utils")]
    #[test]
    fn a_process_that_may_be_read_and_not_written_is_refused_with_that_reason() {
        let (mut child, base, place) = start();
        let pid = child.id();
        let process = Process::open(pid).unwrap();
        process.prove(&place, &PROOF, 7).unwrap();
        let limited = || {
            if !crate::testing::forbid_process_writes() {
                return eprintln!("SKIPPED: this system takes no filter of calls");
            }
            let errno = Errno::EPERM;
            let refused = process.prove(&place, &PROOF, 8);
            assert_eq!(refused, Err(ProcessError::WriteRefused { pid, errno }));
            let memory = HostBuf::region(64).unwrap();
            let piece = ProcessPiece { offset: 0, remote: base, len: 64 };
            process.copy(Direction::Read, &memory, &[piece]).unwrap();
            let refused = process.copy(Direction::Write, &memory, &[piece]);
            assert_eq!(refused, Err(ProcessError::Refused { pid, errno }));
        };
        std::thread::scope(|scope| scope.spawn(limited).join().unwrap());
        process.prove(&place, &PROOF, 9).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Makes the next process get the number `pid`, where that is allowed.
    fn next_is(pid: u32) -> bool {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_ok()
    }

    #[test]
    fn the_number_of_an_ended_process_is_nobody_even_when_another_has_it() {
        let (mut child, base, place) = start();
        let process = Process::open(child.id()).unwrap();
        process.prove(&place, &PROOF, 7).unwrap();
        let pid = child.id();
        let memory = HostBuf::region(64).unwrap();
        memory.write(0, &[0x5a; 64]).unwrap();
        let piece = ProcessPiece { offset: 0, remote: base, len: 64 };
        child.kill().unwrap();
        child.wait().unwrap();
        for _ in 0..100 {
            // The stranger is the same program, without address randomisation of its own: what is
            // looked at is that nothing is said to be done.
            if !next_is(pid) {
                eprintln!("SKIPPED: this process may not choose numbers of others");
                break;
            }
            let (mut other, base, place) = start();
            let same = other.id() == pid;
            if same {
                let piece = ProcessPiece { remote: base + 4096, ..piece };
                let ended = Err(ProcessError::Ended { pid });
                assert_eq!(process.copy(Direction::Write, &memory, &[piece]), ended);
                assert_eq!(process.prove(&place, &PROOF, 7), ended);
                // It has that memory, so the kernel would have written there.
                let again = Process::open(pid).unwrap();
                let back = HostBuf::region(64).unwrap();
                again.copy(Direction::Read, &back, &[piece]).unwrap();
                let mut bytes = [1; 64];
                back.read(0, &mut bytes).unwrap();
                assert_eq!(bytes, [0; 64]);
            }
            other.kill().unwrap();
            other.wait().unwrap();
            if same {
                return;
            }
        }
        let ended = process.copy(Direction::Write, &memory, &[piece]);
        assert_eq!(ended, Err(ProcessError::Ended { pid }));
    }

    #[test]
    fn the_own_process_is_refused_by_the_number_of_any_thread() {
        for pid in [std::process::id(), nix::unistd::gettid().as_raw().unsigned_abs()] {
            assert_eq!(Process::open(pid).err(), Some(ProcessError::Own { pid }));
        }
        assert!(Process::open(u32::MAX).is_err());
    }
}
