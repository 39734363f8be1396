//! Examples, run as a user runs them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// Variables that would change what an example does.
const VARIABLES: [&str; 4] =
    ["WARPVERBS_GPU", "WARPVERBS_NIC", "WARPVERBS_FAULT", "WARPVERBS_PCAP"];

/// An example of the profile that this test was built with, without flags; further words of the name
/// are its first arguments.
pub(crate) fn example(name: &str) -> Command {
    let (name, words) = name.split_once(' ').unwrap_or((name, ""));
    let test = std::env::current_exe().expect("path of this test");
    // target/<profile>/deps/<test>, or the folder that `cargo xtask gpu` has filled
    let folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("examples"));
    let path = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    let path = path.unwrap_or_else(|| {
        panic!("{name} is not built; `cargo build --features full --examples` first")
    });
    let mut command = Command::new(path);
    command.args(words.split_whitespace());
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn run(name: &str, args: &[impl AsRef<OsStr>]) -> Output {
    example(name).args(args).output().unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs on SIMT and the software NIC, and expects success with a last line that begins with
/// `passed`. Returns that line.
pub(crate) fn passes(name: &str, args: &[&str]) -> String {
    let args = [&["--gpu", "simt", "--nic", "soft"], args].concat();
    passed(example(name).args(&args))
}

/// The same for a command that is ready.
pub(crate) fn passed(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stdout = well(&format!("{command:?}"), &out);
    stdout.lines().last().unwrap_or_default().to_owned()
}

/// The output of an example, which must have ended well.
pub(crate) fn well(what: &str, out: &Output) -> String {
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{what}: {stdout}{stderr}");
    assert!(stdout.lines().last().is_some_and(|l| l.starts_with("passed")), "{what}: {stdout}");
    stdout
}

/// An example that runs; it is killed when this is dropped.
pub(crate) struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
    said: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, output, said: String::new() }
    }

    /// Waits until it prints `words`, and gives the rest of that line.
    pub(crate) fn says(&mut self, words: &str) -> String {
        loop {
            let before = self.said.len();
            let len = self.output.read_line(&mut self.said).expect("output");
            assert_ne!(len, 0, "it ends without {words:?}: {}", self.said);
            if let Some((_, rest)) = self.said[before..].split_once(words) {
                return rest.trim().to_owned();
            }
        }
    }

    /// All that it prints, to its end.
    pub(crate) fn end(mut self) -> Output {
        self.output.read_to_string(&mut self.said).expect("output");
        let mut stderr = Vec::new();
        self.process.stderr.as_mut().expect("a pipe").read_to_end(&mut stderr).expect("output");
        let status = self.process.wait().expect("an end");
        Output { status, stdout: std::mem::take(&mut self.said).into_bytes(), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Expects failure: a cause on stderr that contains `words`, and no `passed` anywhere.
pub(crate) fn fails(name: &str, args: &[&str], words: &[&str]) {
    let out = run(name, args);
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(!out.status.success(), "{name} {args:?} succeeded: {stdout}");
    for line in stdout.lines().chain(stderr.lines()) {
        assert!(!line.starts_with("passed"), "{name} {args:?} failed and says {line:?}");
    }
    for word in words {
        assert!(stderr.contains(word), "{name} {args:?}: {word:?} is not in {stderr:?}");
    }
}

/// Says, past the capture of the test harness, that a test checked nothing and why. With
/// `WARPVERBS_REQUIRE_READERS` set, this is a failure instead.
pub(crate) fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("WARPVERBS_REQUIRE_READERS").is_none(), "{test}: {reason}");
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr");
}
