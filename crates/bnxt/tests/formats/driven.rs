//! An unmodified library of a device, driven by a program without the device (`tests/c/driven.h`). Also used by
//! the tests of other formats.

use crate::request::{Payload, Request};
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use warpverbs_rdma::{Op, Remote, Sge};

/// More than the library ever needs.
const DEADLINE: Duration = Duration::from_secs(120);

/// The seed, which it prints: that of the environment, or a new one.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("WARPVERBS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    eprintln!("WARPVERBS_SEED={seed}");
    seed
}

/// Values by a seed, without end.
pub(crate) fn values<T>(strategy: impl Strategy<Value = T>, seed: u64) -> impl FnMut() -> T {
    let mut seeds = [0; 32];
    seeds[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seeds);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    move || strategy.new_tree(&mut runner).expect("a value").current()
}

/// A folder for the program, which is removed with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let name = format!("library-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// Says why nothing is compared; that is a failure where rdma-core has to be there.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("WARPVERBS_REQUIRE_RDMA_CORE").is_none(), "{reason}");
    eprintln!("SKIPPED: {reason}");
}

/// Compiles the crate's program with these headers or the system's, or says why not.
pub(crate) fn program(folder: &Path, headers: Option<&Path>) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/library.c");
    let program = folder.join("library");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    let header = "#include <infiniband/verbs.h>\n";
    let probe = folder.join("probe.c");
    std::fs::write(&probe, header).expect("write");
    let probed = Command::new(cc.get_program()).arg("-fsyntax-only").arg(probe).output();
    if !probed.is_ok_and(|output| output.status.success()) {
        skip("needs a C compiler and rdma-core's headers (Debian: gcc, libibverbs-dev)");
        return None;
    }
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-o"]).arg(&program);
    cc.args(headers.map(|headers| format!("-I{}", headers.display())));
    let output = cc.arg(source).args(["-libverbs", "-ldl"]).output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// The running program.
pub(crate) struct Driven {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Driven {
    /// Starts the program with the library and further arguments. Libraries that it needs are beside it.
    pub(crate) fn start(program: &Path, library: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.arg(library).args(arguments);
        command.env("LD_LIBRARY_PATH", library.parent().expect("a folder"));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let stdin = child.stdin.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, stdin, lines }
    }

    /// The words of the next line.
    pub(crate) fn line(&self) -> Vec<String> {
        let line = self.lines.recv_timeout(DEADLINE).expect("a line from the program");
        line.split_whitespace().map(String::from).collect()
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the program reads");
    }
}

pub(crate) fn number(word: &str) -> u64 {
    u64::from_str_radix(word, 16).expect("a number")
}

pub(crate) fn bytes(word: &str) -> Vec<u8> {
    (0..word.len()).step_by(2).map(|at| number(&word[at..at + 2]) as u8).collect()
}

pub(crate) fn entries(sges: &[Sge]) -> String {
    let entry = |sge: &Sge| format!(" {:x} {:x} {:x}", sge.addr, sge.len, sge.lkey.0);
    format!("{:x}{}", sges.len(), sges.iter().map(entry).collect::<String>())
}

/// The line that posts a request of up to 6 entries, or inline bytes that count on.
pub(crate) fn line(request: &Request) -> String {
    // A datagram's destination, if it is one.
    let none = request.to.map_or(Remote::default(), |to| Remote::new(to.qpn.get().into(), to.qkey));
    let (opcode, imm, remote, compare, swap) = match request.op {
        Op::Write(remote) => (0, 0, remote, 0, 0),
        Op::WriteImm(remote, imm) => (1, imm, remote, 0, 0),
        Op::Send => (2, 0, none, 0, 0),
        Op::SendImm(imm) => (3, imm, none, 0, 0),
        Op::Read(remote) => (4, 0, remote, 0, 0),
        Op::CompareSwap { remote, compare, swap } => (5, 0, remote, compare, swap),
        Op::FetchAdd { remote, add } => (6, 0, remote, add, 0),
        Op::SendInvalidate(rkey) => (9, rkey.0, none, 0, 0),
    };
    let (inline, sges) = match &request.payload {
        Payload::Sges(sges) => (0, entries(sges)),
        Payload::Inline(bytes) => {
            let first = bytes.first().copied().unwrap_or(0);
            (8, entries(&[Sge::new(0, bytes.len() as u32, first.into())]))
        }
    };
    // FENCE 1, SIGNALED 2, SOLICITED 4, as ours.
    let flags = request.flags.bits() | inline;
    let (raddr, rkey) = (remote.addr, remote.rkey.0);
    format!("send {opcode:x} {flags:x} {imm:x} {raddr:x} {rkey:x} {compare:x} {swap:x} {sges}")
}
