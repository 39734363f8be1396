//! Counters in a file.

use super::ending::{Ending, Source};
use crate::{AgentError, lock};
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use warpverbs_meet::poll;

/// The files that agents of this process write.
static WRITTEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A file that this agent alone writes, in this process. Dropping it leaves it to others.
pub(super) struct Written {
    path: PathBuf,
    /// Beside it, for the next content. It does not end in `.prom`, so that no collector reads it.
    next: PathBuf,
    /// No later agent would replace it.
    removed: bool,
    /// The last write failed, which was logged.
    failing: bool,
}

/// All bytes of `from` in `text` replaced.
fn replaced(text: &[u8], from: &str, by: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.windows(from.len()).position(|part| part == from.as_bytes()) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(by.as_bytes());
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// A name as a part of a file's.
fn plain(name: &str) -> String {
    let plain = |byte: u8| match byte {
        b'-' | b'_' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(plain).collect()
}

impl Written {
    /// Writes it for the first time.
    pub(super) fn start(path: &Path, agent: &str, source: &Source) -> Result<Self, AgentError> {
        let pid = std::process::id().to_string();
        let given = path.as_os_str().as_bytes();
        let with_pid = replaced(given, "{pid}", &pid);
        let removed = with_pid != given;
        let path = replaced(&with_pid, "{agent}", &plain(agent));
        let path = std::path::absolute(OsString::from_vec(path));
        let path = path.map_err(|error| AgentError::system("path of metrics", error))?;
        let Some(name) = path.file_name() else {
            let value = path.display().to_string();
            let (field, expected) = ("metrics", "the path of a file");
            return Err(AgentError::Config { field, value, expected });
        };
        let mut next = OsString::from(".");
        next.push(name);
        next.push(format!(".{pid}.tmp"));
        let next = path.with_file_name(next);
        if !lock(&WRITTEN).insert(path.clone()) {
            let value = path.display().to_string();
            let expected = "a file that no other agent of this process writes; {agent} in its path is the name";
            return Err(AgentError::Config { field: "metrics", value, expected });
        }
        let written = Self { path, next, removed, failing: false };
        written.write(&source()).map_err(|error| {
            let text = format!("{}: {error}", written.path.display());
            AgentError::system("write of metrics", io::Error::new(error.kind(), text))
        })?;
        Ok(written)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces it in one step.
    fn write(&self, text: &str) -> io::Result<()> {
        // Left by a process that was killed and had the same number; or a link that somebody has put there.
        let _ = fs::remove_file(&self.next);
        let new = OpenOptions::new().write(true).create_new(true).open(&self.next);
        let written = new.and_then(|mut file| file.write_all(text.as_bytes()));
        let replaced = written.and_then(|()| fs::rename(&self.next, &self.path));
        if replaced.is_err() {
            let _ = fs::remove_file(&self.next);
        }
        replaced
    }

    /// Writes it every so often until the end, and then once more.
    pub(super) fn serve(mut self, ending: &Ending, every: Duration, source: &Source) {
        let mut due = Instant::now() + every;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if poll(&mut [PollFd::new(&*ending.wake, PollFlags::IN)], Some(left)).is_err() {
                // Out of memory for a moment.
                std::thread::sleep(Duration::from_millis(1));
            }
            let ends = ending.has_come();
            if ends && self.removed {
                return;
            }
            if !ends && Instant::now() < due {
                continue;
            }
            due = Instant::now() + every;
            match self.write(&source()) {
                Ok(()) => self.failing = false,
                Err(error) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::warn!(file = %self.path.display(), %error, "metrics cannot be written");
                    }
                }
            }
            if ends {
                return;
            }
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.removed {
            let _ = fs::remove_file(&self.path);
        }
        lock(&WRITTEN).remove(&self.path);
    }
}
