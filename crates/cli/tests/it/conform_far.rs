//! `warpverbs conform` between two processes, on 127.0.0.1.

use super::common::server::{Server, failed, told_apart};
use super::common::{fails, finish, free_port, json, program, run, succeeds, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread;

impl Server {
    fn start(flags: &str) -> Self {
        Self::start_at("127.0.0.1", &format!("--nic soft {flags}"))
    }

    fn start_at(bind: &str, flags: &str) -> Self {
        Self::listening(&format!("conform server --bind {bind} --port 0 --wait 30 {flags}"))
    }

    fn conform_client(&self, flags: &str) -> String {
        self.client("conform", &format!("--nic soft {flags}"))
    }

    /// A connection that has said hello.
    fn greeted(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.addr).expect("the server");
        stream.write_all(b"wvconf\x03\x00c").expect("a preamble");
        stream
    }
}

#[test]
fn all_cases_end_as_they_should_between_two_processes() {
    let report = json("conform local --nic soft --gpu simt --json");
    for side in [&report["setting"], &report["setting"]["peer"]] {
        assert_eq!(side["kind"], "software NICs, RoCEv2", "{report}");
        assert!(side["gpu"].is_string(), "{report}");
    }
    // As many as in one process, and none without a result.
    let names = succeeds("conform --list").lines().count();
    let rows = report["rows"].as_array().expect("cases");
    assert_eq!(rows.len(), names, "{report}");
    let ended = |row: &serde_json::Value| row["result"] == "passed" || row["result"] == "differs";
    assert!(rows.iter().all(ended), "{report}");
}

#[test]
fn what_one_side_lacks_is_said_and_not_failed() {
    let server = Server::start("--host-only");
    let line =
        server.conform_client("--gpu simt --case kernel_write --case kernel_send --case send_imm");
    let words = succeeds(&line);
    assert!(words.contains("peer: kernels on nothing"), "{words}");
    assert!(words.contains("skipped  kernel kernel_send_imm"), "{words}");
    // A kernel that writes needs none at the peer's.
    assert!(words.contains("passed   kernel kernel_write_inline"), "{words}");
    assert!(server.end().status.success());
}

#[test]
fn a_server_over_ipv6_serves_one_client_and_ends() {
    let server = Server::start_at("::1", "--nic soft --gpu simt");
    let words = succeeds(&server.conform_client("--gpu simt --brief --case write_sizes"));
    assert_eq!(words.lines().last(), Some("1 passed"), "{words}");
    let out = server.end();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn nobody_there_and_what_is_not_there_is_said_in_one_line() {
    let line = format!("conform client 127.0.0.1 --port {} --wait 0", free_port());
    fails(&line, &["no server at 127.0.0.1 port", "refused"]);
    failed(&run("conform server --bind 127.0.0.1 --port 0 --wait 0"), &["no client came"]);
    fails("conform client 127.0.0.1 --case no_such_case", &["no_such_case", "--list"]);
    // A NIC that one side lacks is told to both.
    let server = Server::start("");
    let out = run(&server.conform_client("").replace("--nic soft", "--nic mlx5_77"));
    failed(&out, &["mlx5_77", "soft"]);
    failed(&server.end(), &["the client at 127.0.0.1", "mlx5_77"]);
    let server = Server::start_at("127.0.0.1", "--nic mlx5_77");
    failed(&run(&server.conform_client("")), &["the server at 127.0.0.1", "mlx5_77"]);
    failed(&server.end(), &["mlx5_77"]);
}

#[test]
fn another_version_or_program_is_told_apart() {
    for (preamble, words) in [
        (&b"wvconf\x09\x00"[..], ["version 9", "expected 3"]),
        (b"wvperf\x01\x00", ["this version of `warpverbs conform`", "magic \"wvperf\""]),
    ] {
        let server = Server::listening("conform server --bind 127.0.0.1 --port 0 --wait 2");
        told_apart(preamble, &words, "conform client 127.0.0.1 --nic soft", server);
    }
}

#[test]
fn what_is_no_message_ends_a_server() {
    for (bytes, words) in [
        // A request that does not exist; a reply; one with a byte too many; one that is too long.
        (&[3, 0, 0, 0, 0, 0, 0xee][..], "sent a malformed message"),
        (&[3, 0, 0, 0, 0, 1, 0], "sent \"reply\", expected \"request or end\""),
        (&[4, 0, 0, 0, 0, 0, 0, 0], "1 bytes too many"),
        (&[0xff; 8], "at most"),
    ] {
        let server = Server::start("");
        let mut client = server.greeted();
        client.write_all(bytes).expect("a message");
        failed(&server.end(), &[words]);
    }
}

/// Starts all cases again and again, and gives both processes once some have ended.
fn under_way() -> (Server, Child) {
    let server = Server::start("--gpu simt");
    let mut command = program(&server.conform_client("--gpu simt"));
    let client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client");
    let mut client = client;
    let mut out = BufReader::new(client.stdout.take().expect("its output"));
    // Two sides of two lines each, and the first cases.
    for _ in 0..8 {
        out.read_line(&mut String::new()).expect("a line");
    }
    // Further output of the client has somewhere to go.
    thread::spawn(move || out.read_to_end(&mut Vec::new()));
    (server, client)
}

#[test]
fn a_killed_peer_ends_the_other_soon() {
    let (mut server, client) = under_way();
    server.child.kill().expect("the server is there");
    let out = finish(client);
    failed(&out, &["the server at 127.0.0.1", "ended the connection", "cases had ended"]);
    server.end();

    let (server, mut client) = under_way();
    client.kill().expect("the client is there");
    client.wait().expect("its end");
    failed(&server.end(), &["the client at 127.0.0.1", "ended the connection"]);
}
