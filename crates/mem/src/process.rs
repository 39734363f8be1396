//! Memory of another process, copied by the kernel (`process_vm_readv`, `process_vm_writev`).

use crate::{Kind, MemError, Region};
use arrayvec::ArrayVec;
use nix::errno::Errno;
use std::sync::atomic::{Ordering, fence};
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
        /// What it said.
        errno: Errno,
    },
    /// The process of that number has something else where its proof should be: it is another
    /// process, or one of another PID namespace.
    #[error("process {pid} is not the expected one: its proof is wrong")]
    WrongProof {
        /// The number.
        pid: u32,
    },
    /// The own side is out of bounds or not host memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// Another process that wants its memory to be copied, as it has shown by telling an address and
/// 16 random bytes that are found there.
///
/// What is written to it, and when, is between the two: the other process must keep memory in place
/// as long as it has told this one that it may be written.
#[derive(Debug)]
pub struct Process {
    pid: libc::pid_t,
}

impl Process {
    /// The process `pid`, if the kernel lets this one read its memory and `proof` is at `addr`.
    ///
    /// # Errors
    /// It is this process, it cannot be read, or the bytes are others.
    pub fn attach(pid: u32, addr: u64, proof: &[u8; 16]) -> Result<Self, ProcessError> {
        let own = ProcessError::Own { pid };
        let process = Self { pid: libc::pid_t::try_from(pid).map_err(|_| own.clone())? };
        // The kernel takes the number of any thread for that of its process.
        let own_pid = std::process::id();
        // SAFETY: signal 0 is only checked for, never sent.
        let thread = unsafe { libc::syscall(libc::SYS_tgkill, own_pid, process.pid, 0) };
        if process.pid <= 0 || thread == 0 {
            return Err(own);
        }
        let found = crate::SmallBuf::region(proof.len());
        let piece = ProcessPiece { offset: 0, remote: addr, len: proof.len() as u64 };
        process.copy(Direction::Read, &found, &[piece])?;
        let mut bytes = [0; 16];
        found.read(0, &mut bytes)?;
        match bytes == *proof {
            true => Ok(process),
            false => Err(ProcessError::WrongProof { pid }),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Moves `pieces` in order between `region` and that process. When this returns, all bytes are
    /// in place.
    ///
    /// # Errors
    /// A piece is outside of `region`, or the process is gone or has nothing mapped there. Pieces
    /// before the one that failed have been moved.
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
            self.all(direction, &mut local, &mut remote)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuf;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    const PROOF: [u8; 16] = *b"sixteen bytes ok";
    const LEN: usize = 3 << 20;

    /// The part of another process: prints where its memory is and, asked by a line, its sum.
    #[test]
    fn other_process() {
        if std::env::var_os("MEM_OTHER_PROCESS").is_none() {
            return;
        }
        let memory = HostBuf::region(LEN).unwrap();
        memory.write(0, &PROOF).unwrap();
        println!("\n> {}", memory.addr());
        std::io::stdin().read_exact(&mut [0]).unwrap();
        let mut bytes = vec![0; LEN];
        memory.read(0, &mut bytes).unwrap();
        println!("\n> {}", sum(&bytes));
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
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::tests::other_process", "--nocapture"])
            .env("MEM_OTHER_PROCESS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let base = answer(&mut child);
        let wrong = Process::attach(child.id(), base + 1, &PROOF);
        assert_eq!(wrong.err(), Some(ProcessError::WrongProof { pid: child.id() }));
        let process = Process::attach(child.id(), base, &PROOF).unwrap();

        let own = HostBuf::region(LEN).unwrap();
        let mut expected = vec![0; LEN];
        expected[..16].copy_from_slice(&PROOF);
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
        assert!(matches!(gone, Err(ProcessError::Refused { errno: Errno::ESRCH, .. })));
    }

    #[test]
    fn the_own_process_is_refused_by_the_number_of_any_thread() {
        let memory = crate::SmallBuf::of(&PROOF);
        for pid in [std::process::id(), nix::unistd::gettid().as_raw().unsigned_abs()] {
            let own = Process::attach(pid, memory.addr(), &PROOF);
            assert_eq!(own.err(), Some(ProcessError::Own { pid }));
        }
        assert!(Process::attach(u32::MAX, 0, &PROOF).is_err());
    }
}
