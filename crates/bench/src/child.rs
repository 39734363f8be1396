//! Programs that a measurement runs beside itself.

use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Between looks at a program that runs.
const PAUSE: Duration = Duration::from_millis(2);

/// Lines of a program's output that an error has.
const LAST: usize = 3;

/// util-linux's, with the words that go before a program.
const SETPRIV: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Words before a program that have the kernel kill it when the thread that starts it has ended, however
/// that ended. None without util-linux: then only [`Running`] ends it.
pub fn bound() -> &'static [&'static str] {
    static WORDS: OnceLock<&[&str]> = OnceLock::new();
    WORDS.get_or_init(|| {
        let tried = Command::new(SETPRIV[0]).args(&SETPRIV[1..]).arg("true").output();
        if tried.is_ok_and(|out| out.status.success()) { &SETPRIV } else { &[] }
    })
}

/// `program`, [`bound`] to the thread that starts it.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let [first, others @ ..] = bound() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(others).arg(program);
    command
}

/// A program that runs, and is killed with this value.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    /// All of its standard output, at the end of that.
    text: Option<Receiver<io::Result<Vec<u8>>>>,
}

impl Running {
    /// Starts `command`, which errors call `name`. Standard output is read if `command` pipes it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: impl Into<String>, command: &mut Command) -> Result<Self> {
        let name = name.into();
        let child = command.spawn().with_context(|| name.clone())?;
        Ok(Self::from((name, child)))
    }

    /// Kills it, if it still runs.
    pub fn kill(&mut self) {
        // One that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system's.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| self.name.clone())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It still runs at `until`.
    pub fn wait(&mut self, until: Instant) -> Result<ExitStatus> {
        self.wait_while(until, || Ok(()))
    }

    /// Waits for its end as long as `goes_on` gives no error.
    fn wait_while(
        &mut self,
        until: Instant,
        mut goes_on: impl FnMut() -> Result<()>,
    ) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            goes_on()?;
            ensure!(Instant::now() < until, "{} did not end in time", self.name);
            std::thread::sleep(PAUSE);
        }
    }

    /// As [`Self::finish`], beside the program that it talks to: some do not notice when that has failed, and
    /// go on counting.
    ///
    /// # Errors
    /// As there; `peer` failed before this program ended.
    pub fn finish_beside(mut self, peer: &mut Self, until: Instant) -> Result<String> {
        let name = self.name.clone();
        self.wait_while(until, || match peer.ended()? {
            Some(status) if !status.success() => {
                bail!("{name}: the other end, {}: {status}", peer.name)
            }
            _ => Ok(()),
        })?;
        self.finish(until)
    }

    /// Waits for its end and for that of its standard output, which it returns.
    ///
    /// # Errors
    /// It still runs at `until`, or something else has its output open; it failed: with the
    /// last lines of its output.
    pub fn finish(mut self, until: Instant) -> Result<String> {
        let status = self.wait(until)?;
        let mut text = Vec::new();
        if let Some(whole) = self.text.take() {
            let left = until.saturating_duration_since(Instant::now());
            let whole = whole.recv_timeout(left);
            text = whole.with_context(|| format!("{}: its output does not end", self.name))??;
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(status.success(), "{}: {status}: {}", self.name, last_lines(&text));
        Ok(text)
    }
}

/// The end of what a program printed, where it says why it failed.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST)..].join("; ")
}

impl From<(String, Child)> for Running {
    fn from((name, mut child): (String, Child)) -> Self {
        let text = child.stdout.take().map(|mut stdout| {
            let (sender, receiver) = channel();
            std::thread::spawn(move || {
                let mut text = Vec::new();
                // Nobody receives if the program did not end in time.
                let _ = sender.send(io::Read::read_to_end(&mut stdout, &mut text).map(|_| text));
            });
            receiver
        });
        Self { name, child, text }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    /// In the shell's place: a child of a killed shell would go on, and whoever reads this program's output would wait for it.
    const LASTS: &str = "exec sleep 300";

    fn shell(script: &str) -> Command {
        let mut command = command("sh");
        command.args(["-c", script, "a test"]).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_program_ends_with_all_that_it_printed() {
        // More than a pipe holds.
        let script = "head -c 1000000 /dev/zero | tr '\\0' x";
        let text = Running::start("a test", &mut shell(script)).unwrap().finish(soon()).unwrap();
        assert_eq!((text.len(), text.trim_matches('x')), (1_000_000, ""));
        let failing =
            Running::start("a test", &mut shell("seq 8; echo; echo ' why'; exit 3")).unwrap();
        let error = failing.finish(soon()).unwrap_err().to_string();
        assert_eq!(error, "a test: exit status: 3: 7; 8; why");
        assert!(Running::start("a test", &mut Command::new("/nowhere/program")).is_err());
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let mut running = Running::start("a test", &mut shell(LASTS)).unwrap();
        let status = format!("/proc/{}/status", running.child.id());
        assert!(running.ended().unwrap().is_none());
        let error = running.wait(Instant::now()).unwrap_err().to_string();
        assert_eq!(error, "a test did not end in time");
        drop(running);
        assert!(!std::path::Path::new(&status).exists(), "{status}");
    }

    #[test]
    fn a_program_is_not_waited_for_when_its_peer_has_failed() {
        let start = |script: &str| Running::start(script, &mut shell(script)).unwrap();
        let error = start(LASTS).finish_beside(&mut start("exit 3"), soon()).unwrap_err();
        assert_eq!(error.to_string(), "exec sleep 300: the other end, exit 3: exit status: 3");
        let (mut ended, mut running) = (start("exit 0"), start(LASTS));
        ended.wait(soon()).unwrap();
        for peer in [&mut ended, &mut running] {
            assert_eq!(start("echo 1").finish_beside(peer, soon()).unwrap(), "1\n");
        }
    }

    #[test]
    fn a_bound_program_ends_with_the_one_that_started_it() {
        if bound().is_empty() {
            println!("skipped: there is no setpriv of util-linux");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        // The inner program keeps the output open, and its parent ends when it is bound.
        let script = r#"mkfifo "$1/ready"; cd "$1"; shift
            "$@" sh -c 'echo > ready; exec sleep 300' & read line < ready"#;
        let mut outer = shell(script);
        outer.arg(folder.path()).args(bound());
        Running::start("a test", &mut outer).unwrap().finish(soon()).unwrap();
    }
}
