//! Ranks as processes, of which each may be started, watched and killed by itself.

use crate::common::example;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Ends a hang: every process that is to end by itself has ended by then, however slow the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// The flags that all ranks of a job have.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) example: &'static str,
    pub(crate) size: u32,
    pub(crate) port: u16,
    pub(crate) flags: Vec<&'static str>,
    /// Seconds after which a silent rank is lost, if not the default.
    pub(crate) wait: Option<u64>,
}

impl Job {
    pub(crate) fn new(example: &'static str, size: u32, flags: &[&'static str]) -> Self {
        Self { example, size, port: free_port(), flags: flags.to_vec(), wait: None }
    }

    /// One rank, on SIMT and the software NIC, at 127.0.0.1 and this job's port.
    pub(crate) fn command(&self, rank: u32) -> Command {
        let mut command = example(self.example);
        command.args(["--gpu", "simt", "--nic", "soft", "--master-addr", "127.0.0.1"]);
        command.args(["--master-port", &self.port.to_string()]);
        command.args(["--rank", &rank.to_string(), "--world-size", &self.size.to_string()]);
        command.args(&self.flags);
        command.args(self.wait.into_iter().flat_map(|wait| ["--wait".into(), wait.to_string()]));
        command
    }

    pub(crate) fn start(&self, rank: u32) -> Rank {
        Rank::start(self.command(rank))
    }

    pub(crate) fn start_all(&self) -> Vec<Rank> {
        (0..self.size).map(|rank| self.start(rank)).collect()
    }
}

/// Lines as they come.
#[derive(Default)]
struct Lines {
    state: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Lines {
    fn of(from: impl Read + Send + 'static) -> Arc<Self> {
        let lines = Arc::new(Self::default());
        let to = lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                to.state.lock().unwrap().0.push(line.unwrap_or_default());
                to.changed.notify_all();
            }
            to.state.lock().unwrap().1 = true;
            to.changed.notify_all();
        });
        lines
    }

    /// Waits for `enough` to be true of the lines, or for their end.
    fn wait(&self, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let more = |state: &mut (Vec<String>, bool)| !state.1 && !enough(&state.0);
        let (state, over) = self.changed.wait_timeout_while(state, PATIENCE, more).unwrap();
        assert!(!over.timed_out(), "it does not end: {:?}", state.0);
        state.0.clone()
    }
}

/// Waits for something that must come.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool, otherwise: &str) {
    let start = Instant::now();
    while !holds() {
        // Ends a hang; no test depends on how long it takes.
        assert!(start.elapsed() < PATIENCE, "after {PATIENCE:?} {otherwise}");
        // Leaves the processor to those that are waited for.
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and has not ended.
pub(crate) fn is_running(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The state follows the name, which is in brackets; Z has ended and waits for its parent.
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Whether this process ignores a signal.
pub(crate) fn ignores(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("a mask") >> (signal - 1) & 1 == 1
}

/// A running rank; killed when it is dropped.
pub(crate) struct Rank {
    child: Child,
    out: Arc<Lines>,
    err: Arc<Lines>,
}

/// How a rank ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<String>,
    pub(crate) err: Vec<String>,
}

impl Rank {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let out = Lines::of(child.stdout.take().expect("a pipe"));
        let err = Lines::of(child.stderr.take().expect("a pipe"));
        Self { child, out, err }
    }

    /// Waits until this many lines of the table have been printed, the head included.
    pub(crate) fn await_rows(&self, rows: usize) {
        let is_row = |line: &&String| line.contains("Mpps") || line.starts_with("  ");
        let found = self.out.wait(|lines| lines.iter().filter(is_row).count() >= rows);
        assert!(
            found.iter().filter(is_row).count() >= rows,
            "only {found:?}, {:?}",
            self.err.wait(|_| false)
        );
    }

    /// Waits until one of these kernels runs: the SIMT device names its threads after them.
    pub(crate) fn await_kernel(&self, kernels: &[&str]) {
        eventually(|| self.is_in(kernels), &format!("none of {kernels:?} runs"));
    }

    /// Waits until none of these kernels runs, at most for `limit`.
    pub(crate) fn leave_kernel(&self, kernels: &[&str], limit: Duration) {
        let start = Instant::now();
        while self.is_in(kernels) && start.elapsed() < limit {
            // Leaves the processor to those that are waited for.
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_in(&self, kernels: &[&str]) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let tasks = tasks.into_iter().flatten().flatten();
        let mut names = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
        // The system keeps 15 bytes of a name.
        let is = |name: &str, kernel| name == format!("simt0:{kernel:.9}");
        names.any(|name| kernels.iter().any(|kernel| is(name.trim(), kernel)))
    }

    /// The processes that it has started.
    pub(crate) fn children(&self) -> Vec<u32> {
        let id = self.child.id();
        let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let list = list.expect("a list of children");
        list.split_whitespace().map(|id| id.parse().expect("a number")).collect()
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(kill.expect("kill").success());
    }

    /// It does nothing any more, but is still there.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
    }

    pub(crate) fn end(mut self) -> Ended {
        let (out, err) = (self.out.wait(|_| false), self.err.wait(|_| false));
        Ended { status: self.child.wait().expect("a status"), out, err }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    pub(crate) fn passed(&self) {
        assert!(self.status.success(), "{self:?}");
    }

    /// It says in one line, which has one of `words`, why it failed.
    pub(crate) fn failed(&self, words: &[&str]) {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        let [line] = &self.err[..] else { panic!("not one line: {self:?}") };
        assert!(line.starts_with("failed: "), "{self:?}");
        assert!(words.iter().any(|word| line.contains(word)), "{words:?} are not in {line:?}");
        assert!(!self.out.iter().any(|line| line.starts_with("passed")), "{self:?}");
    }
}

/// All of `ranks` fail with one of `words`.
pub(crate) fn all_fail(ranks: Vec<Rank>, words: &[&str]) {
    ranks.into_iter().for_each(|rank| rank.end().failed(words));
}
