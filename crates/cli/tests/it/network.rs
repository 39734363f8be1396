//! `perf write|read|send|atomic` between processes, on 127.0.0.1.

use super::common::hosts::{ADDRESSES, Hosts};
use super::common::server::{Server, failed, told_apart};
use super::common::{fails, free_port, json, program, run, succeeds, text};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;

impl Server {
    fn perf(op: &str) -> Self {
        Self::listening(&format!("perf {op} server --bind 127.0.0.1 --port 0 --wait 30"))
    }
}

#[test]
fn every_operation_is_measured_between_two_processes() {
    for op in ["write", "read", "send", "atomic"] {
        let sizes = if op == "atomic" { "" } else { "-b 1 -e 9000 -f 3000" };
        let document = json(&format!("perf {op} local {sizes} -q 1,3 -n 40 -w 5 --json"));
        assert_eq!(document["command"], format!("perf {op}"));
        let rows = document["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), if op == "atomic" { 2 } else { 6 }, "{rows:?}");
        for row in rows {
            assert_eq!(row["data"], "equal", "{row}");
            assert_eq!(row["latency"]["samples"], 40, "{row}");
            assert_eq!(row["messages"].as_u64(), row["qps"].as_u64().map(|qps| 40 * qps), "{row}");
            assert!(row["messages_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        }
    }
}

#[test]
fn a_kernel_posts_where_it_is_asked_to() {
    for op in ["write", "read", "send", "atomic"] {
        let sizes = if op == "atomic" { "" } else { "-b 5 -e 5000 -f 1000" };
        let line = format!("perf {op} local --gpu simt {sizes} -q 1,2 -t 40 -n 33 -w 5 --json");
        let document = json(&line);
        assert!(document["setting"]["gpu"]["name"].is_string(), "{document}");
        let rows = document["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), if op == "atomic" { 2 } else { 4 }, "{rows:?}");
        for row in rows {
            assert_eq!((&row["data"], &row["latency"]["samples"]), (&"equal".into(), &33.into()));
            assert_eq!(row["messages"].as_u64(), row["qps"].as_u64().map(|qps| 33 * qps), "{row}");
        }
    }
}

#[test]
fn the_link_is_as_told_and_said() {
    for (link, said) in [("udp", "UDP at"), ("shm", "shared memory at"), ("auto", "shared memory")]
    {
        let flags = format!("-b 1 -e 100000 -f 100000 -q 1,3 -n 40 -w 5 --link {link} --json");
        let document = json(&format!("perf write local {flags}"));
        let rows = document["rows"].as_array().expect("rows");
        assert!(rows.len() == 4 && rows.iter().all(|row| row["data"] == "equal"), "{rows:?}");
        let why = document["setting"]["nic"]["why"].as_str().unwrap_or_default();
        assert!(why.contains(said), "{link}: {why}");
    }
    let lossy = "-b 8 -e 60000 -f 7500 -n 200 --loss 1% --seed 4 --link shm --json";
    let document = json(&format!("perf read local {lossy}"));
    assert_eq!(document["rows"][1]["data"], "equal", "{document}");
    let told = text(&run("perf write local --link tcp").stderr);
    assert!(told.contains("\"tcp\" is not a link") && told.contains("udp, shm"), "{told}");
}

/// Shared memory leads nowhere between two network namespaces, which have their own names of sockets.
#[test]
fn a_link_that_leads_nowhere_is_said() {
    let Some(hosts) = Hosts::new() else {
        return eprintln!("SKIPPED: needs iproute2 and the right to make network namespaces");
    };
    let server = Server::started(&mut hosts.on(0, &program("perf write server --port 0")));
    let port = server.addr.port();
    let flags = "-b 8 -e 8 -n 1 --link shm --row-limit 2";
    let line = format!("perf write client {} --port {port} {flags}", ADDRESSES[0]);
    let client = hosts.on(1, &program(&line)).output().expect("a client");
    let nobody = format!("no process of this user has a link by shared memory at {}", ADDRESSES[0]);
    failed(&client, &["did not finish within 2s", &nobody, "in this network namespace"]);
    failed(&server.end(), &["did not finish within 2s"]);
}

#[test]
fn time_depth_mtu_engine_and_loss_are_as_told() {
    let flags = "-b 3000 -e 3000 -D 0.02 --tx-depth 1 --mtu 256 --engine thread --loss 0.5%";
    let document = json(&format!("perf write local {flags} --seed 3 --json"));
    assert!(document["rows"][0]["messages"].as_u64().is_some_and(|n| n > 0), "{document}");
    let why = document["setting"]["nic"]["why"].as_str().unwrap_or_default();
    assert!(why.contains("loss=0.5%,seed=3") && why.contains("own thread"), "{why}");
    let table = succeeds("perf read local --lat -b 8 -e 8 -n 10");
    assert!(table.contains("p99.9") && !table.contains("bandwidth"), "{table}");
    let table = succeeds("perf read local --bw -b 8 -e 8 -n 10");
    assert!(!table.contains("p99") && table.contains("bandwidth"), "{table}");
}

#[test]
fn a_plot_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plot.svg");
    succeeds(&format!("perf write local -b 8 -e 4K -n 5 --plot {}", file.display()));
    let svg = std::fs::read_to_string(&file).expect("the plot");
    let parsed = roxmltree::Document::parse(&svg).expect("XML");
    assert_eq!(parsed.root_element().tag_name().name(), "svg");
    assert!(svg.contains("warpverbs perf write") && svg.contains("4 KiB"), "{svg}");
    let out = run(&format!("perf write local -b 8 -e 8 -n 5 --plot {}/no/a.svg", file.display()));
    assert!(text(&out.stdout).contains("equal"), "the rows are printed");
    failed(&out, &["cannot write", "no/a.svg"]);
}

#[test]
fn a_server_serves_a_client_and_ends() {
    let server = Server::perf("send");
    let line = server.client("perf send", "-b 8 -e 8 -n 20 -q 2");
    assert!(succeeds(&line).contains("equal"));
    let out = server.end();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn nobody_there_is_said_in_one_line() {
    let line = format!("perf write client 127.0.0.1 --port {} --wait 0", free_port());
    fails(&line, &["no server at 127.0.0.1 port", "refused"]);
    fails("perf write client host.invalid --wait 0", &["host.invalid", "no address"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    fails(
        &format!("perf write server --bind 127.0.0.1 --port {port}"),
        &["cannot listen", "in use"],
    );
    failed(&run("perf write server --bind 127.0.0.1 --port 0 --wait 0"), &["no client came"]);
}

#[test]
fn another_version_or_program_is_told_apart() {
    for (preamble, words) in [
        (&b"wvperf\x09\x00"[..], ["version 9", "expected 3"]),
        (b"SSH-2.0-OpenSSH", ["this version of `warpverbs perf`", "magic \"SSH-2.\""]),
    ] {
        let server = Server::listening("perf write server --bind 127.0.0.1 --port 0 --wait 2");
        told_apart(preamble, &words, "perf write client 127.0.0.1", server);
    }
}

#[test]
fn what_a_client_asks_for_is_checked_by_the_server() {
    let server = Server::perf("write");
    let out = run(&server.client("perf read", ""));
    failed(&out, &["the server at", "this server measures write, the client read"]);
    failed(&server.end(), &["this server measures write"]);

    // Words, and a setup: write, inline, device memory, no MTU, depth 0, no faults, no link, 5 s. A stop: one count.
    for (frame, words) in [
        (frame(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 5]), "--tx-depth is 0, expected 1 to 16384"),
        (frame(&[0, 5, 1, 1]), "sent \"stop\", expected \"setup\""),
        (frame(&[99]), "malformed message"),
        (vec![0xff; 8], "at most"),
    ] {
        let server = Server::perf("write");
        let mut client = TcpStream::connect(server.addr).expect("the server");
        client.write_all(&[&b"wvperf\x03\x00c"[..], &frame].concat()).expect("a message");
        failed(&server.end(), &[words]);
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

#[test]
fn strangers_keep_no_client_from_a_server() {
    let server = Server::perf("write");
    let strangers = [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"wvperf", b"wvconf\x02\x00c"];
    let strangers = strangers.map(|bytes| {
        let mut stream = TcpStream::connect(server.addr).expect("the server");
        stream.write_all(bytes).expect("its bytes");
        stream
    });
    drop(TcpStream::connect(server.addr).expect("the server"));
    assert!(succeeds(&server.client("perf write", "-b 8 -e 8 -n 20")).contains("equal"));
    let out = server.end();
    assert!(out.status.success(), "{}", text(&out.stderr));
    drop(strangers);
}

/// A measurement that takes longer than anybody waits, in its timed part: both processes, and what
/// the client has still to say.
fn under_way(flags: &str) -> (Server, Child, thread::JoinHandle<String>) {
    let server = Server::perf("write");
    let line = server.client("perf write", &format!("-b 8 -e 8 -D 25 {flags}"));
    let mut command = program(&line);
    command.env("WARPVERBS_LOG", "warpverbs::perf=info");
    let client = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut client = client.expect("a client");
    let mut said = BufReader::new(client.stderr.take().expect("its errors")).lines();
    let measuring = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("measuring")));
    measuring.expect("a timed part").expect("a line");
    let rest = thread::spawn(move || said.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    (server, client, rest)
}

#[test]
fn a_killed_peer_ends_the_other_soon() {
    for flags in ["--lat", "--bw", "--bw --gpu simt"] {
        let (mut server, mut client, said) = under_way(flags);
        server.child.kill().expect("the server is there");
        assert!(!client.wait().expect("the client's end").success());
        let said = said.join().expect("its words");
        let words = ["error: ", "the server at 127.0.0.1", "ended the connection"];
        assert!(words.iter().all(|word| said.contains(word)), "{flags}: {said}");
        assert_eq!(said.lines().count(), 1, "{flags}: {said}");
        server.end();
    }
    let (server, mut client, _) = under_way("--lat");
    client.kill().expect("the client is there");
    client.wait().expect("its end");
    failed(&server.end(), &["the client at 127.0.0.1", "ended the connection"]);
}
