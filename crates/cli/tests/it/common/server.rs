//! A server of the program's, and what its clients and it have to say about each other.

use super::{PATIENCE, fails, finish, program, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Instant;

/// A server on a port of its own. Each test starts it and its clients with flags of its own.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) addr: SocketAddr,
}

impl Server {
    /// Starts the program with the flags of `line`, and takes its address from its first line.
    pub(crate) fn listening(line: &str) -> Self {
        Self::started(&mut program(line))
    }

    /// The same of a program that is to be run elsewhere.
    pub(crate) fn started(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a server");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("its first line");
        let addr = line.trim().rsplit(' ').next().and_then(|addr| addr.parse().ok());
        Self { child, addr: addr.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }

    /// The line of a client of `command`, such as `perf write`.
    pub(crate) fn client(&self, command: &str, flags: &str) -> String {
        format!("{command} client {} --port {} {flags}", self.addr.ip(), self.addr.port())
    }

    /// Waits until `holds` for its process.
    pub(crate) fn wait_until(&self, holds: impl Fn(u32) -> bool) {
        let begun = Instant::now();
        while !holds(self.child.id()) {
            assert!(begun.elapsed() < PATIENCE, "the server does nothing");
            thread::yield_now();
        }
    }

    /// Waits for its end, which comes soon.
    pub(crate) fn end(self) -> Output {
        finish(self.child)
    }
}

/// Expects failure, with one line that has `words`.
pub(crate) fn failed(out: &Output, words: &[&str]) {
    let stderr = text(&out.stderr);
    assert!(!out.status.success(), "it succeeded: {}", text(&out.stdout));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in {stderr:?}");
    }
}

/// A peer that begins with `preamble` is refused with `words`: by the client with the flags of
/// `client`, to which a port is added, and by `server`, when its time is over.
pub(crate) fn told_apart(preamble: &'static [u8], words: &[&str], client: &str, server: Server) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(preamble).expect("a preamble");
        // Until the client has ended.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    fails(&format!("{client} --port {port}"), words);
    other.join().expect("the other server");

    let mut client = TcpStream::connect(server.addr).expect("the server");
    client.write_all(preamble).expect("a preamble");
    failed(&server.end(), &[words, &["no client came"]].concat());
}
