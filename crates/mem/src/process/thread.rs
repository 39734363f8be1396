//! A thread of another process, by its folder in `/proc`: the folder is that thread's for good, and is
//! empty as soon as the thread has ended, whichever thread or process has its number then.

use super::ProcessError;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, faccessat};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;

/// A thread that another process is reached by.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) pid: u32,
    pub(super) number: libc::pid_t,
    folder: OwnedFd,
}

impl Thread {
    /// The thread `number` of process `pid`, which is not the first: the first one's number stays when
    /// the process executes another program, and all others end.
    pub(super) fn open(pid: u32, number: u32) -> Result<Self, ProcessError> {
        let refused = |errno| ProcessError::Refused { pid, errno };
        if pid == number {
            return Err(ProcessError::FirstThread { pid });
        }
        // One of another PID namespace has other numbers.
        let own = std::process::id().to_string();
        if !std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == &own[..]) {
            return Err(ProcessError::OtherNumbers);
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let path = format!("/proc/{pid}/task/{number}");
        let folder = open(&path[..], flags, Mode::empty()).map_err(refused)?;
        let number = libc::pid_t::try_from(number).map_err(|_| refused(Errno::ESRCH))?;
        Ok(Self { pid, number, folder })
    }

    /// Whether it still runs.
    pub(super) fn check(&self) -> Result<(), ProcessError> {
        let found = faccessat(&self.folder, "comm", AccessFlags::F_OK, AtFlags::empty());
        found.map_err(|_| ProcessError::Ended { pid: self.pid })
    }

    /// Whether it acts for the user that this process acts for, and for no other.
    pub(super) fn is_of_this_user(&self) -> Result<bool, ProcessError> {
        self.look("status", is_of_this_user)
    }

    /// Whether nothing but its own process can have written the `len` bytes at `at`, and nobody may now:
    /// they are in a private mapping of no file that may only be read.
    pub(super) fn keeps(&self, at: u64, len: u64) -> Result<bool, ProcessError> {
        self.look("maps", |maps| {
            for line in maps.lines() {
                let line = line?;
                if let Some(mapping) = Mapping::of(&line)
                    && (mapping.from..mapping.to).contains(&at)
                {
                    return Ok(mapping.is_kept && len <= mapping.to - at);
                }
            }
            Ok(false)
        })
    }

    fn look<T>(
        &self,
        name: &str,
        read: impl FnOnce(BufReader<File>) -> io::Result<T>,
    ) -> Result<T, ProcessError> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::empty());
        let found =
            file.map_err(io::Error::from).and_then(|file| read(BufReader::new(file.into())));
        found.map_err(|error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            self.check().err().unwrap_or(ProcessError::Refused { pid: self.pid, errno })
        })
    }
}

/// A line of `maps`.
struct Mapping {
    from: u64,
    to: u64,
    /// Private, of no file, and only to be read.
    is_kept: bool,
}

impl Mapping {
    /// From-to, rights, offset, device, inode, name.
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |word| u64::from_str_radix(word, 16).ok();
        let (rights, inode) = (words.next()?, words.nth(2)?);
        Some(Self {
            from: number(from)?,
            to: number(to)?,
            is_kept: (rights, inode) == ("r--p", "0"),
        })
    }
}

/// Whether process `pid` acts for the user that this process acts for, and for no other. A privileged
/// process may reach into those of all users, which is not for their peers to make use of.
///
/// # Errors
/// There is no such process, or `/proc` does not show it.
pub fn same_user(pid: u32) -> io::Result<bool> {
    is_of_this_user(BufReader::new(File::open(format!("/proc/{pid}/status"))?))
}

/// The owner of files in `/proc` would not do: they are root's where a process may not be dumped.
fn is_of_this_user(status: impl BufRead) -> io::Result<bool> {
    // SAFETY: takes nothing, and cannot fail.
    let own = unsafe { libc::geteuid() }.to_string();
    for line in status.lines() {
        // Real, effective, saved and of the file system.
        if let Some(users) = line?.strip_prefix("Uid:") {
            return Ok(users.split_whitespace().all(|user| user == own));
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
