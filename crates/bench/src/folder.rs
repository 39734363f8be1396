//! A temporary folder of a program. It goes at the program's end; if the program is killed, the next one
//! takes it away.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Attempts to make one: a program that takes old ones away may find it before it is locked.
const ATTEMPTS: u32 = 16;

/// A folder of its own, locked while it is used.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    _lock: Flock<File>,
}

impl Folder {
    /// Makes one whose name begins with `prefix`, after those of programs that were killed are gone.
    ///
    /// # Errors
    /// The system's.
    pub fn new(prefix: &str) -> io::Result<Self> {
        Self::below(&std::env::temp_dir(), prefix)
    }

    fn below(parent: &Path, prefix: &str) -> io::Result<Self> {
        take_away_old(parent, prefix);
        let mut made = Self::attempt(parent, prefix);
        for _ in 1..ATTEMPTS {
            if made.is_ok() {
                break;
            }
            made = Self::attempt(parent, prefix);
        }
        made
    }

    fn attempt(parent: &Path, prefix: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let lock = Flock::lock(File::open(folder.path())?, FlockArg::LockShared);
        let lock = lock.map_err(|(_, errno)| io::Error::from(errno))?;
        // The program that held the lock before may have taken the folder away.
        fs::metadata(folder.path())?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of programs that have ended, and whose children have.
fn take_away_old(parent: &Path, prefix: &str) {
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_bytes().starts_with(prefix.as_bytes());
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = entry.path();
            // Other users' are theirs to take away.
            let Ok(file) = File::open(&path) else { continue };
            let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
            if lock.is_ok() && !is_used(&path) {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// Whether a process was started with the folder in a variable: a child of a program that was killed may live on.
fn is_used(folder: &Path) -> bool {
    let wanted = [b"=", folder.as_os_str().as_bytes()].concat();
    let processes = Path::new("/proc").read_dir().into_iter().flatten().flatten();
    let environments = processes.map(|process| process.path().join("environ"));
    environments
        .filter_map(|file: PathBuf| fs::read(file).ok())
        .any(|environment| environment.split(|byte| *byte == 0).any(|one| one.ends_with(&wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn folders_of_programs_that_were_killed_are_taken_away() {
        let parent = tempfile::tempdir().unwrap();
        let make = || Folder::below(parent.path(), "a-test-").unwrap();
        let is_there = |path: &Path| path.exists();
        let (running, killed, orphaned) = (make(), make(), make());
        let [running_at, killed_at, orphaned_at] =
            [&running, &killed, &orphaned].map(|folder| folder.path().to_owned());
        fs::create_dir_all(killed_at.join("class/infiniband")).unwrap();
        // A killed program removes nothing, and its lock goes with it.
        for Folder { folder, _lock } in [killed, orphaned] {
            let _ = folder.keep();
        }
        let mut program = Command::new("cat");
        program.env("SYSFS_PATH", &orphaned_at).stdin(Stdio::piped());
        let mut program = program.spawn().unwrap();
        let next = make();
        assert!(is_there(&running_at) && is_there(&orphaned_at) && is_there(next.path()));
        assert!(!is_there(&killed_at));
        drop(program.stdin.take());
        program.wait().unwrap();
        drop((running, make()));
        assert!(!is_there(&running_at) && !is_there(&orphaned_at) && is_there(next.path()));
    }
}
