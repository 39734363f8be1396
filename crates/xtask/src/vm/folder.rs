//! The folder in which two machines have their sockets and say what they say.

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const PREFIX: &str = "wv-vm";
/// A younger folder may be of a program that has yet to lock it.
const YOUNG: Duration = Duration::from_secs(60);

/// Goes when it is dropped. Of a program that is killed it stays, without the lock; the next one
/// removes it.
pub(super) struct Folder {
    _lock: Flock<File>,
    folder: TempDir,
}

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let all = std::env::temp_dir();
        remove_abandoned(&all, YOUNG);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&all)?;
        let lock = lock(folder.path());
        let lock = lock.with_context(|| format!("locking {}", folder.path().display()))?;
        Ok(Self { _lock: lock, folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn lock(folder: &Path) -> Result<Flock<File>> {
    let lock = Flock::lock(File::open(folder)?, FlockArg::LockExclusiveNonblock);
    lock.map_err(|(_, errno)| errno.into())
}

/// Ignores what cannot be read or removed: another user owns it, or another process removes it.
fn remove_abandoned(all: &Path, young: Duration) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let age = modified.and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age >= young) && lock(&entry.path()).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_removed() {
        let all = tempfile::tempdir().expect("a folder");
        let make = |name: &str| {
            let path = all.path().join(name);
            fs::create_dir(&path).expect("a folder");
            fs::write(path.join("port10"), "").expect("a file");
            path
        };
        let (held, left, other) = (make("wv-vmHELD"), make("wv-vmLEFT"), make("other"));
        let _lock = lock(&held).expect("a lock");
        remove_abandoned(all.path(), YOUNG);
        assert!(left.exists(), "it may be somebody's who is just starting");
        remove_abandoned(all.path(), Duration::ZERO);
        assert_eq!((held.exists(), left.exists(), other.exists()), (true, false, true));
    }
}
