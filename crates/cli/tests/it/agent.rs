//! `perf agent` between processes, on 127.0.0.1.

use super::common::hosts::{ADDRESSES, Hosts};
use super::common::program;
use super::common::server::{Server, failed};
use super::common::{fails, json, succeeds, text};
use serde_json::Value;
use std::process::Stdio;

fn rows(document: &Value) -> &Vec<Value> {
    assert_eq!(document["command"], "perf agent");
    document["rows"].as_array().expect("rows")
}

#[test]
fn every_list_is_measured_by_the_path_that_its_memory_has() {
    let shapes = "-s 8,1000x30,64K --layouts adjacent,scattered -m host,shared -t 1,2";
    let document = json(&format!("perf agent local {shapes} -n 12 -w 1 --makes 3 --json"));
    let rows = rows(&document);
    // Two memories, two numbers of threads, two operations; four lists.
    assert_eq!(rows.len(), 2 * 2 * 2 * 4);
    for row in rows {
        let host = row["local"] == "host";
        let path = if host { "process copy" } else { "mapped memory" };
        assert_eq!((&row["path"], &row["data"]), (&path.into(), &"equal".into()), "{row}");
        let scattered = row["layout"] == "scattered";
        let pieces = if scattered { row["blocks"].as_u64() } else { Some(1) };
        assert_eq!(row["pieces"].as_u64(), pieces, "{row}");
        assert_eq!(row["transfers"].as_u64(), row["threads"].as_u64().map(|n| 12 * n), "{row}");
        for (part, samples) in [("prepare", 3), ("make", 3), ("initialize", 3)] {
            assert_eq!(row[part]["samples"], samples, "{row}");
        }
        let (post, whole) = (&row["post"]["p50_ns"], &row["transfer"]["p50_ns"]);
        assert!(post.as_u64() > Some(0) && whole.as_u64() >= post.as_u64(), "{row}");
        assert!(row["bytes_per_s"].as_f64() > Some(0.0), "{row}");
    }
    let notes = document["notes"].as_array().expect("notes");
    let words = notes.iter().map(|note| note.as_str().expect("a note")).collect::<String>();
    // So few bytes give no rate.
    for said in ["host to host: process copy", "shared to shared: mapped memory"] {
        assert!(words.contains(said), "{words}");
    }
}

#[test]
fn blocks_go_over_the_network_and_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let plot = folder.path().join("plot.svg");
    let network = "-m host --nic soft --require network -q 3";
    let line =
        format!("perf agent local -s 8,100Kx20 {network} -n 3 -w 0 --plot {}", plot.display());
    let table = succeeds(&line);
    assert_eq!(table.matches("network").count() - 1, 4, "{table}");
    let svg = std::fs::read_to_string(&plot).expect("the plot");
    assert!(roxmltree::Document::parse(&svg).is_ok() && svg.contains("blocks of 100 KiB"), "{svg}");
}

/// Between two memories the client fetches and brings metadata, which ends none of what serves it.
#[test]
fn several_memories_go_over_one_path() {
    for path in ["network --nic soft", "tcp"] {
        let memories = "-m host,shared,host:shared";
        let line = format!("perf agent local -s 8 {memories} --require {path} -n 3 -w 0 --json");
        let document = json(&line);
        assert_eq!(rows(&document).len(), 2 * 3);
        assert!(rows(&document).iter().all(|row| row["data"] == "equal"), "{document}");
    }
}

/// Each asks the server two or three times, by notifications for which it has room.
#[test]
fn there_may_be_more_rows_than_notifications_that_wait() {
    let shapes = ["8"; 32].join(",");
    let document = json(&format!("perf agent local -s {shapes} -m host -n 1 -w 0 --json"));
    assert_eq!(rows(&document).len(), 2 * 32);
}

#[test]
fn kernels_of_the_simt_device_copy_lists() {
    let document = json("perf agent local -m shared --copy-by kernel -s 100x9 -n 2 --json");
    assert_eq!(rows(&document).len(), 2);
}

#[test]
fn client_and_server_meet_by_their_addresses() {
    let server = Server::listening("perf agent server --bind 127.0.0.1 --port 0 --wait 30");
    let document = json(&server.client("perf agent", "-s 8 -n 2 --json"));
    assert_eq!(rows(&document).len(), 4);
    assert!(server.end().status.success());
}

/// Neither end is told an interface: they take that of the connection on which they meet.
#[test]
fn the_software_nic_uses_the_interface_of_the_connection() {
    for (server, client) in [("0.0.0.0", "127.0.0.1"), ("127.0.0.7", "127.0.0.7")] {
        let server =
            Server::listening(&format!("perf agent server --nic soft --bind {server} -p 0"));
        let flags = "-s 8,70Kx3 -m host -n 3 --nic soft --require network --json";
        let port = server.addr.port();
        let document = json(&format!("perf agent client {client} -p {port} {flags}"));
        assert_eq!(rows(&document).len(), 4, "{document}");
        assert!(rows(&document).iter().all(|row| row["data"] == "equal"), "{document}");
        assert!(server.end().status.success());
    }
}

#[test]
fn two_hosts_measure_by_the_software_nic() {
    let Some(hosts) = Hosts::new() else {
        return eprintln!("SKIPPED: needs iproute2 and the right to make network namespaces");
    };
    let server = "perf agent server --nic soft -p 0";
    let server = Server::started(&mut hosts.on(0, &program(server)));
    let (host, port) = (ADDRESSES[0], server.addr.port());
    let flags = "-s 8,70Kx3 -m host -n 3 --nic soft --require network --json";
    let line = format!("perf agent client {host} -p {port} {flags}");
    let client = hosts.on(1, &program(&line)).output().expect("a client");
    assert!(client.status.success(), "{}", text(&client.stderr));
    let document: Value = serde_json::from_slice(&client.stdout).expect("JSON");
    assert_eq!(rows(&document).len(), 4, "{document}");
    assert!(rows(&document).iter().all(|row| row["data"] == "equal"), "{document}");
    assert!(server.end().status.success());
}

/// The connection tells, whatever the client was doing.
#[test]
fn a_server_ends_with_its_client() {
    let server = || Server::listening("perf agent server --bind 127.0.0.1 -p 0");
    // The client has no path that it may take.
    let failing = server();
    let flags = "-s 8 -m host -n 1 --require mapped";
    fails(&failing.client("perf agent", flags), &["mapped"]);
    failed(&failing.end(), &["the client at 127.0.0.1", "mapped"]);
    // It is killed in the middle of a row.
    let left = server();
    let line = left.client("perf agent", "-s 8 -m host -D 60");
    let mut client = program(&line).stdout(Stdio::null()).spawn().expect("a client");
    left.wait_until(|pid| threads(pid) > 1);
    client.kill().and_then(|()| client.wait()).expect("its end");
    failed(&left.end(), &["the client at 127.0.0.1", "ended the connection"]);
}

/// How many threads a process has: an agent has some of its own.
fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

#[test]
fn what_cannot_be_measured_is_refused() {
    fails("perf agent local -s 0", &["0", "2^20"]);
    fails("perf agent local -s 8x0", &["2^20"]);
    fails("perf agent local -m disk", &["disk"]);
    fails("perf agent local -t 0", &["-t is 0"]);
    fails("perf agent local -D 0", &["-D is 0"]);
    fails("perf agent local -s 1G -t 64", &["64 GiB", "4 GiB"]);
    fails("perf agent local --kernel-blocks 0 -n 1", &["kernel_blocks is 0"]);
    fails("perf agent local -m host --require network -n 1 -s 8", &["no NIC", "excluded"]);
    fails("perf agent client 127.0.0.1 -p 1 --wait 0", &["no server at 127.0.0.1 port 1"]);
    let ended = program("perf agent server --bind 127.0.0.1 --port 0 --wait 0").output();
    let ended = ended.expect("a server");
    assert!(!ended.status.success() && text(&ended.stderr).contains("no client came"));
}
