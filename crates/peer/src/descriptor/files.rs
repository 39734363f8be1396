//! Files of sockets in the folder for temporary files: how they are named and made, and how those that
//! processes have left behind are removed.

use super::server::FLAGS;
use rustix::net::SocketAddrUnix;
use std::fs::DirEntry;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use warpverbs_meet::unix;

const PREFIX: &str = "warpverbs-";
/// Ending of the files of sockets with a listener, or whose listener has ended.
const SUFFIX: &str = ".sock";
/// Ending of the files of sockets without a listener yet.
const EARLY: &str = ".new";
/// Files of others that one start looks at, at most.
const MOST_SWEPT: usize = 512;
/// Longest path of a unix socket in bytes.
const LONGEST_PATH: usize = 107;
/// Kinds of file systems that one kernel alone has mounted, as `statfs` says them: ext2 to ext4, XFS, Btrfs, tmpfs,
/// overlayfs, F2FS and ZFS.
const LOCAL: [u64; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1];

/// The name of a socket with these random bytes: with this start of this machine, since a folder may be
/// shared with others, whose listeners are not seen here.
pub(super) fn name(random: [u8; 16]) -> String {
    format!("{}{}", prefix(), random.map(|byte| format!("{byte:02x}")).concat())
}

/// The file of a socket that has this name, too.
pub(super) fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{name}{SUFFIX}"))
}

pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let len = path.as_os_str().len();
    if len > LONGEST_PATH {
        let long = format!("{} has {len} bytes, at most {LONGEST_PATH} fit", path.display());
        return Err(io::Error::other(long));
    }
    // Under its name it is found only when somebody listens, so that `sweep` takes nothing of a
    // process that is just starting.
    let early = path.with_extension(&EARLY[1..]);
    let socket = unix::listen(&SocketAddrUnix::new(&early)?, FLAGS);
    let named = socket.and_then(|socket| std::fs::rename(&early, path).map(|()| socket));
    named.inspect_err(|_| drop(std::fs::remove_file(&early)))
}

/// Of the names of this start of this machine.
fn prefix() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    format!("{PREFIX}{}-", if boot.is_empty() { "unknown" } else { &boot })
}

/// Removes the files of sockets at which nobody listens any more: a process that is killed leaves its
/// own behind, and a machine that stops those of all.
pub(super) fn sweep() {
    let (folder, ours) = (std::env::temp_dir(), prefix());
    let Ok(entries) = std::fs::read_dir(&folder) else { return };
    let before = started().filter(|_| is_local(&folder));
    let left = entries.flatten().filter_map(|entry| match Name::of(&entry, &ours)? {
        Name::Own => Some(entry),
        Name::Foreign => before.is_some_and(|start| is_older(&entry, start)).then_some(entry),
    });
    for entry in left.take(MOST_SWEPT) {
        if is_abandoned(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whose socket a file is, by its name.
enum Name {
    /// One of this start of this machine.
    Own,
    /// One of another start or another machine.
    Foreign,
}

impl Name {
    fn of(entry: &DirEntry, ours: &str) -> Option<Self> {
        let name = entry.file_name();
        let name = name.to_str()?;
        if name.starts_with(ours) {
            return name.ends_with(SUFFIX).then_some(Self::Own);
        }
        let rest = name.strip_prefix(PREFIX)?;
        let rest = rest.strip_suffix(SUFFIX).or_else(|| rest.strip_suffix(EARLY))?;
        let (boot, random) = rest.split_once('-')?;
        let is = |word: &str, len| word.len() == len && word.chars().all(|c| c.is_ascii_hexdigit());
        ((is(boot, 12) || boot == "unknown") && is(random, 32)).then_some(Self::Foreign)
    }
}

/// When this machine was started.
fn started() -> Option<SystemTime> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds = uptime.split_whitespace().next()?.parse().ok()?;
    SystemTime::now().checked_sub(Duration::try_from_secs_f64(seconds).ok()?)
}

/// Whether no other machine has files in this folder. Its sockets would look like those of an earlier start.
fn is_local(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|found| LOCAL.contains(&(found.f_type as u64)))
}

/// Whether it is a socket of this user, from before this machine was started.
fn is_older(entry: &DirEntry, start: SystemTime) -> bool {
    // Of a symbolic link, its own.
    let Ok(found) = entry.metadata() else { return false };
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    is_own && found.file_type().is_socket() && found.modified().is_ok_and(|made| made < start)
}

/// Whether it is a socket whose listener is gone.
fn is_abandoned(path: &Path) -> bool {
    let connected = SocketAddrUnix::new(path).map(|address| unix::connect(&address, FLAGS));
    connected.is_ok_and(|socket| socket.is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused))
}
