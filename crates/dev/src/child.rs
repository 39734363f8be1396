//! Processes of their own for tests: a test of the same program, run there alone.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

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
