//! `perf tcp` between processes, on 127.0.0.1.

use super::common::server::Server;
use super::common::{fails, json, succeeds, text};

#[test]
fn messages_and_writes_are_measured_between_two_processes() {
    let line = "perf tcp local --sizes 8,100K --sockets 3 --chunk 64K -D 0.01 --rounds 1 --alone";
    let folder = tempfile::tempdir().expect("a folder");
    let plot = folder.path().join("plot.svg");
    let document = json(&format!("{line} --json --plot {}", plot.display()));
    let drawn = std::fs::read_to_string(plot).expect("a plot");
    assert!(drawn.contains("write bandwidth") && drawn.contains("write latency"), "{drawn}");
    assert_eq!(document["command"], "perf tcp");
    let rows = document["rows"].as_array().expect("rows");
    let tests: Vec<_> = rows.iter().map(|row| row["test"].as_str().expect("a name")).collect();
    let bandwidth = ["message_bandwidth", "write_bandwidth"];
    assert_eq!(tests, [["message_latency", "write_latency"], bandwidth].concat());
    for (row, bytes) in rows.iter().zip([8, 8, 102_400, 102_400]) {
        assert_eq!((&row["bytes"], &row["data"]), (&bytes.into(), &"equal".into()), "{row}");
        let value = if bytes == 8 { &row["p50_ns"] } else { &row["bytes_per_s"] };
        assert!(value.as_f64().is_some_and(|value| value > 0.0), "{row}");
        assert!(row["ucx_p50_ns"].is_null() && row["bare_bytes_per_s"].is_null(), "{row}");
    }
    let why = document["setting"]["nic"]["why"].as_str().expect("a reason");
    assert!(why.contains("no receive queue was named") && why.contains("host memory"), "{why}");
}

#[test]
fn a_server_serves_a_client_and_ends() {
    let server = Server::listening("perf tcp server --bind 127.0.0.1 --port 0");
    let line = server.client("perf tcp", "--sizes 8 -D 0.01 --rounds 1");
    assert!(succeeds(&line).contains("latency"));
    let end = server.end();
    assert!(end.status.success(), "{}", text(&end.stderr));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    fails("perf tcp local --sizes 7", &["--sizes", "8 bytes"]);
    fails("perf tcp local --sockets 65 --alone", &["number of sockets is 65"]);
    fails("perf tcp local --chunk 1K --alone", &["the chunk is 1024"]);
    fails("perf tcp client 127.0.0.1 --port 1 --wait 0", &["no server at 127.0.0.1 port 1"]);
    fails("perf tcp client host.invalid", &["host.invalid", "no address"]);
}
