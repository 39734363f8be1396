//! The program as a user runs it.

pub(crate) mod hosts;
pub(crate) mod server;

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// The program, with the flags of `line`, in an environment that asks for nothing.
pub(crate) fn program(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpverbs"));
    command.args(line.split_whitespace());
    for variable in ["WARPVERBS_GPU", "WARPVERBS_NIC", "WARPVERBS_FAULT", "WARPVERBS_PCAP"] {
        command.env_remove(variable);
    }
    command
}

/// A port of TCP that nobody listens on, never the same twice, and below those that the system hands out.
/// `is_listening` of [`unmodified`](crate::unmodified) knows a server by its port, and looks into this network until the
/// server is in its own.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (number % 12_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn run(line: &str) -> Output {
    output(program(line))
}

pub(crate) fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn succeeds(line: &str) -> String {
    let out = run(line);
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{line}: {stdout}{stderr}");
    stdout
}

pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(&succeeds(line)).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Waits for a program's end; one that does not end is killed, and the test fails.
pub(crate) fn finish(mut child: Child) -> Output {
    // Read meanwhile: a program that fills a pipe would wait for its reader.
    let (stdout, stderr) = (child.stdout.take().map(read), child.stderr.take().map(read));
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            kill(&mut child);
            child.wait().unwrap();
            break None;
        }
        // Leaves the processor to the program.
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] =
        [stdout, stderr].map(|read| read.map_or_else(Vec::new, |read| read.join().unwrap()));
    let Some(status) = status else {
        panic!("still running: {}{}", text(&stdout), text(&stderr));
    };
    Output { status, stdout, stderr }
}

fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Kills the program that `warpverbs run` waits for.
pub(crate) fn kill(child: &mut Child) {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    for pid in fs::read_to_string(children).unwrap_or_default().split_whitespace() {
        Command::new("kill").args(["-KILL", pid]).status().unwrap();
    }
}

/// Expects failure, nothing on stdout, and `words` on stderr.
pub(crate) fn fails(line: &str, words: &[&str]) {
    let out = run(line);
    let stderr = text(&out.stderr);
    assert!(!out.status.success(), "{line} succeeded: {}", text(&out.stdout));
    assert_eq!(text(&out.stdout), "", "{line}");
    for word in words {
        assert!(stderr.contains(word), "{line}: {word:?} is not in {stderr:?}");
    }
}
