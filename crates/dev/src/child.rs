//! Processes of their own for tests: a test of the same program, run there alone.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The beginning of the lines by which a child says something. The harness writes to the same output.
const MARK: &str = "> ";

/// Says something to the process that has started this one as its [`Child`].
pub fn say(what: impl Display) {
    // The harness has perhaps begun a line.
    println!("\n{MARK}{what}");
}

/// Another process; killed when it is dropped. Its output is open until then: libtest ends if it cannot
/// say that a test takes more than a minute.
#[derive(Debug)]
pub struct Child {
    /// The process.
    pub process: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Runs the test `name`, its full name in this program, with `variable` set to `value`. Without the
    /// variable the test has nothing to do.
    ///
    /// # Panics
    /// It does not start.
    pub fn of_test(name: &str, variable: &str, value: impl Display) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.args(["--exact", name, "--include-ignored", "--nocapture"]);
        Self::start(command.env(variable, value.to_string()))
    }

    /// Runs a program.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, input, output }
    }

    /// The next thing that it [says](say).
    ///
    /// # Panics
    /// It has ended.
    pub fn said(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.output.read_line(&mut line).expect("text");
            assert_ne!(count, 0, "the other process has ended");
            if let Some(said) = line.strip_prefix(MARK) {
                return said.trim_end().to_owned();
            }
        }
    }

    /// Writes it a line, and gives its answer.
    ///
    /// # Panics
    /// It has ended.
    pub fn ask(&mut self, what: impl Display) -> String {
        writeln!(self.input.as_mut().expect("its input"), "{what}").expect("a process that reads");
        self.said()
    }

    /// Closes its input and waits until it has ended.
    ///
    /// # Panics
    /// The system does not tell.
    pub fn end(mut self) -> ExitStatus {
        drop(self.input.take());
        self.process.wait().expect("an end")
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until all threads of a process that was sent SIGSTOP have stopped: one that runs on another
/// core does so a moment later (proc_pid_stat(5)).
///
/// # Panics
/// There is no such process, or it does not stop.
pub fn await_stopped(pid: u32) {
    let is_stopped = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat"));
            stat.is_ok_and(|stat| {
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
            })
        })
    };
    let end = Instant::now() + Duration::from_secs(600);
    while !is_stopped() {
        // Ends a hang alone.
        assert!(Instant::now() < end, "process {pid} does not stop");
        // Leaves the processor to those that are to stop.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the test `name`, its full name in this program, is alone in its process. If not, it is run
/// by this call in a process of its own, with its output, and must pass there. For tests that count
/// what a process has, or limit it.
///
/// # Panics
///
/// If the test fails there, or there is no such test.
pub fn is_alone(name: &str) -> bool {
    const ALONE: &str = "WARPVERBS_TEST_ALONE";
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        return true;
    }
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]).env(ALONE, name).stdin(Stdio::null());
    let out = command.output().expect("this program runs again");
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{}", said.concat());
    assert!(out.status.success(), "{name}, in a process of its own: {}", out.status);
    assert!(said[0].contains("1 passed"), "there is no test {name}");
    false
}
