//! The program as a user runs it.

pub(crate) mod hosts;
pub(crate) mod server;

use serde_json::Value;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

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
    program(line).output().unwrap_or_else(|e| panic!("{line}: {e}"))
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
