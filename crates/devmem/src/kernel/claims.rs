//! Rules of one interface that several processes set. A lock keeps two from taking the same location: the
//! name of an abstract Unix socket, since such names belong to the network namespace, as interfaces
//! and their rules do, do not depend on the mounts of a process, and are free again when their process
//! ends.
//!
//! Each rule has such a name, too, and a file: files say which rules have been set, names whose process
//! lives. So a rule whose name is free is of a process that has ended, however it ended, and is removed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

/// The longest wait for the lock of an interface.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// Which packets go to which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Rule {
    pub(super) flow_type: u32,
    pub(super) flow: [u8; 52],
    pub(super) queue: u64,
}

/// The rules of an interface. Inserting at a location that is taken replaces the rule there.
pub(super) trait Table {
    fn free(&self) -> io::Result<u32>;
    fn locations(&self) -> io::Result<Vec<u32>>;
    fn rule(&self, location: u32) -> io::Result<Rule>;
    /// Inserts a rule at a location; returns its location.
    fn insert(&self, rule: &Rule, at: u32) -> io::Result<u32>;
    fn delete(&self, location: u32) -> io::Result<()>;
}

/// A rule of this process, until this is dropped.
#[derive(Debug)]
pub(super) struct Claim<T: Table> {
    table: T,
    files: Files,
    rule: Rule,
    location: u32,
    path: PathBuf,
    /// Bound as long as this process lives.
    _name: UnixListener,
}

impl<T: Table> Claim<T> {
    /// Inserts `rule` at the interface of this number.
    pub(super) fn new(table: T, interface: u32, rule: Rule) -> io::Result<Self> {
        Self::of(table, Files::of(interface)?, rule)
    }

    fn of(table: T, files: Files, rule: Rule) -> io::Result<Self> {
        let _lock = files.lock()?;
        files.sweep(&table)?;
        // First, so that there is no rule without a file.
        let (path, name) = files.record(&rule)?;
        let inserted = table.free().and_then(|at| table.insert(&rule, at));
        match inserted {
            Ok(location) => Ok(Self { table, files, rule, location, path, _name: name }),
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }
}

impl<T: Table> Drop for Claim<T> {
    fn drop(&mut self) {
        // The interface may be gone, with its rules. Without the lock, the file stays, and the rule is
        // removed by another process.
        let Ok(_lock) = self.files.lock() else { return };
        // Another program may have put another rule there.
        if self.table.rule(self.location).is_ok_and(|found| found != self.rule) {
            let _ = std::fs::remove_file(&self.path);
            return;
        }
        let _ = self.table.delete(self.location);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The files of an interface.
#[derive(Debug)]
struct Files {
    folder: PathBuf,
    /// Network namespace and number of the interface.
    prefix: String,
}

impl Files {
    fn of(interface: u32) -> io::Result<Self> {
        let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
        Ok(Self { folder: folder()?, prefix: format!("{namespace}-{interface}") })
    }

    /// Keeps other processes from changing rules until it is dropped.
    fn lock(&self) -> io::Result<UnixListener> {
        let name = self.name(&[])?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(lock) = take(&name)? {
                return Ok(lock);
            }
            if Instant::now() > until {
                let name = String::from_utf8_lossy(name.as_abstract_name().unwrap_or_default());
                let why = format!(
                    "another process keeps the socket @{name}, which locks the rules, for more than \
                     {} s: `ss -xlp` names it",
                    PATIENCE.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The name of the lock, or with the bytes of a rule that of the rule.
    fn name(&self, rule: &[u8]) -> io::Result<SocketAddr> {
        let name = [b"wv-steer-", self.prefix.as_bytes(), b"-", rule].concat();
        SocketAddr::from_abstract_name(name)
    }

    /// A file that says what the rule is, and the name of the rule.
    fn record(&self, rule: &Rule) -> io::Result<(PathBuf, UnixListener)> {
        let taken = || io::Error::new(io::ErrorKind::AddrInUse, "another process steers this flow");
        let live = take(&self.name(rule.as_bytes())?)?.ok_or_else(taken)?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = format!("{}-{:016x}.rule", self.prefix, u64::from_le_bytes(random));
        let path = self.folder.join(name);
        let mut file = open(&path, OpenOptions::new().write(true).create_new(true))?;
        let written = file.write_all(rule.as_bytes());
        written.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        Ok((path, live))
    }

    /// Removes the rules of processes that have ended.
    fn sweep(&self, table: &impl Table) -> io::Result<()> {
        let begin = format!("{}-", self.prefix);
        let mut stale = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with(&begin) || !name.ends_with(".rule") {
                continue;
            }
            let mut file = open(&entry.path(), OpenOptions::new().read(true))?;
            let mut rule = Rule::new_zeroed();
            // Its process has ended before it had written it, under the lock, and inserted no rule.
            if file.read_exact(rule.as_mut_bytes()).is_err() {
                std::fs::remove_file(entry.path())?;
            // The same flow may have a new socket since: then its name is taken.
            } else if take(&self.name(rule.as_bytes())?)?.is_some() {
                stale.push((rule, entry.path()));
            }
        }
        let gone: Vec<Rule> = stale.iter().map(|(rule, _)| *rule).collect();
        if !gone.is_empty() {
            for location in table.locations()? {
                // If the driver does not list its rules, they stay.
                if table.rule(location).is_ok_and(|rule| gone.contains(&rule)) {
                    table.delete(location)?;
                }
            }
        }
        stale.iter().try_for_each(|(_, path)| std::fs::remove_file(path))
    }
}

/// Opens a file of this user alone.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// The name, unless another has it.
fn take(name: &SocketAddr) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(name) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        taken => taken.map(Some),
    }
}

/// A folder in which only this user makes files, the same for all processes of the user.
fn folder() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let running = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let parents = [Some("/run".into()), running, Some("/tmp".into())];
    let mut refused = io::ErrorKind::NotFound.into();
    for parent in parents.into_iter().flatten() {
        match own(&parent.join(format!("warpverbs-{user}")), user) {
            Ok(path) => return Ok(path),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn own(path: &Path, user: u32) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        let why = format!("{} is not a folder of user {user} alone", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::process::Command;
    use std::sync::{Arc, Mutex};

    /// A NIC with room for this many rules, to which another process may come between two requests.
    #[derive(Clone, Debug, Default)]
    struct Nic(Arc<Mutex<BTreeMap<u32, Rule>>>);

    const ROOM: u32 = 64;

    impl Table for Nic {
        fn free(&self) -> io::Result<u32> {
            let taken = self.0.lock().unwrap();
            let free = (0..ROOM).rev().find(|at| !taken.contains_key(at));
            drop(taken);
            std::thread::yield_now();
            free.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))
        }

        fn locations(&self) -> io::Result<Vec<u32>> {
            Ok(self.0.lock().unwrap().keys().copied().collect())
        }

        fn rule(&self, location: u32) -> io::Result<Rule> {
            let found = self.0.lock().unwrap().get(&location).copied();
            found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        }

        fn insert(&self, rule: &Rule, at: u32) -> io::Result<u32> {
            self.0.lock().unwrap().insert(at, *rule);
            Ok(at)
        }

        fn delete(&self, location: u32) -> io::Result<()> {
            let deleted = self.0.lock().unwrap().remove(&location);
            deleted.map(drop).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        }
    }

    /// A folder and a prefix of names, gone with this value.
    struct Folder(PathBuf, String);

    impl Folder {
        fn new() -> Self {
            let path =
                std::env::temp_dir().join(format!("warpverbs-claims-{}", rand::random::<u64>()));
            std::fs::create_dir(&path).unwrap();
            Self(path, format!("{}-2", rand::random::<u32>()))
        }

        /// As another container of the same network namespace sees it.
        fn elsewhere(&self) -> Self {
            let mut other = Self::new();
            other.1.clone_from(&self.1);
            other
        }

        fn files(&self) -> Files {
            Files { folder: self.0.clone(), prefix: self.1.clone() }
        }

        fn claim(&self, nic: &Nic, port: u8) -> Claim<Nic> {
            Claim::of(nic.clone(), self.files(), rule(port)).unwrap()
        }

        fn records(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn rule(port: u8) -> Rule {
        Rule { flow_type: 1, flow: std::array::from_fn(|i| i as u8 ^ port), queue: 7 }
    }

    /// As a process that is killed: the kernel closes its files, and nothing else happens.
    fn kill(claim: Claim<Nic>) {
        let mut dead = std::mem::ManuallyDrop::new(claim);
        let other = SocketAddr::from_abstract_name(rand::random::<[u8; 16]>()).unwrap();
        drop(std::mem::replace(&mut dead._name, UnixListener::bind_addr(&other).unwrap()));
    }

    /// In two containers that have the host's network and folders of their own.
    #[test]
    fn processes_do_not_take_each_others_locations() {
        let (folder, nic) = (Folder::new(), Nic::default());
        let folders = [&folder, &folder.elsewhere()];
        let claims = |first: u8| -> Vec<_> {
            let folder = folders[usize::from(first / 16 % 2)];
            (first..first + 16).map(|port| folder.claim(&nic, port)).collect()
        };
        // Names are those of sockets, so threads are as good as processes.
        std::thread::scope(|scope| {
            let claims = &claims;
            let each = [0, 16, 32, 48].map(|first| scope.spawn(move || claims(first)));
            let each = each.map(|claiming| claiming.join().unwrap());
            let rules = nic.0.lock().unwrap().len();
            assert_eq!(rules, 64, "one has overwritten another's rule");
            drop(each);
        });
        assert!(nic.0.lock().unwrap().is_empty());
        assert_eq!(folders.map(Folder::records), [0, 0]);
    }

    #[test]
    fn a_flow_that_another_container_uses_again_keeps_its_rule() {
        let (folder, nic) = (Folder::new(), Nic::default());
        let elsewhere = folder.elsewhere();
        kill(folder.claim(&nic, 1));
        // The rule of the dead one is not known there, and is replaced by its like.
        nic.0.lock().unwrap().clear();
        let again = elsewhere.claim(&nic, 1);
        let other = folder.claim(&nic, 2);
        assert_eq!(nic.locations().unwrap().len(), 2, "a rule of a live process is gone");
        let twice = Claim::of(nic.clone(), folder.files(), rule(1)).unwrap_err();
        assert_eq!(twice.to_string(), "another process steers this flow");
        drop((again, other));
        assert!(nic.locations().unwrap().is_empty());
    }

    #[test]
    fn another_network_namespace_has_locks_of_its_own() {
        const PREFIX: &str = "WARPVERBS_TEST_CLAIMS";
        let files = |prefix| Files { folder: PathBuf::new(), prefix };
        if let Ok(prefix) = std::env::var(PREFIX) {
            let name = files(prefix).name(&[]).unwrap();
            return assert!(take(&name).unwrap().is_some());
        }
        let prefix = rand::random::<u64>().to_string();
        let _lock = files(prefix.clone()).lock().unwrap();
        let name = files(prefix.clone()).name(&[]).unwrap();
        assert!(take(&name).unwrap().is_none());
        let unshare = || Command::new("unshare");
        if !unshare().args(["--net", "true"]).status().is_ok_and(|made| made.success()) {
            return eprintln!("SKIPPED: needs the right to make network namespaces");
        }
        let own = "kernel::claims::tests::another_network_namespace_has_locks_of_its_own";
        let mut again = unshare();
        again
            .arg("--net")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", own])
            .env(PREFIX, prefix);
        let output = again.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    fn rules_of_processes_that_were_killed_are_removed_and_no_others() {
        let (folder, nic) = (Folder::new(), Nic::default());
        // The administrator's, and two of a live process.
        nic.insert(&rule(100), 3).unwrap();
        let live = [folder.claim(&nic, 1), folder.claim(&nic, 2)];
        let dead = [folder.claim(&nic, 3), folder.claim(&nic, 4)];
        assert_eq!(nic.locations().unwrap().len(), 5);
        dead.into_iter().for_each(kill);
        assert_eq!((nic.locations().unwrap().len(), folder.records()), (5, 4));
        let another = folder.claim(&nic, 5);
        let ports = |nic: &Nic| {
            let rules = nic.0.lock().unwrap().values().copied().collect::<Vec<_>>();
            (0..=u8::MAX).filter(|port| rules.contains(&rule(*port))).collect::<Vec<_>>()
        };
        assert_eq!(ports(&nic), [1, 2, 5, 100]);
        assert_eq!(folder.records(), 3);
        // A rule that somebody has put in the place of ours stays.
        nic.insert(&rule(101), another.location).unwrap();
        drop(another);
        drop(live);
        assert_eq!(ports(&nic), [100, 101]);
        assert_eq!(folder.records(), 0);
    }

    #[test]
    fn a_flow_that_is_used_again_keeps_its_rule() {
        let (folder, nic) = (Folder::new(), Nic::default());
        kill(folder.claim(&nic, 1));
        let again = folder.claim(&nic, 1);
        assert_eq!(nic.locations().unwrap(), [again.location]);
        let other = folder.claim(&nic, 2);
        assert_eq!(nic.locations().unwrap().len(), 2);
        drop((again, other));
        assert!(nic.locations().unwrap().is_empty());
    }

    #[test]
    fn a_folder_that_others_write_to_is_not_taken() {
        let folder = Folder::new();
        let user = rustix::process::geteuid().as_raw();
        let inside = folder.0.join("own");
        assert!(own(&inside, user).is_ok() && own(&inside, user).is_ok());
        assert!(own(&inside, user + 1).is_err());
        std::os::unix::fs::symlink(&inside, folder.0.join("link")).unwrap();
        assert!(own(&folder.0.join("link"), user).is_err());
    }
}
