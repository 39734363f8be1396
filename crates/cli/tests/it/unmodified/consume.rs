//! A device that only consumes: it completes what doorbells announce, and reads and moves nothing.

use super::unmapped::{compiled, passes_as};
use super::{ready, run, succeeds};
use crate::common::text;
use serde_json::Value;

#[test]
fn a_program_switches_at_will() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("consume", folder.path()) else { return };
    passes_as("", &program, "0");
    passes_as("--consume", &program, "1");
}

/// A measurement of `warpverbs perf` on the device, by kernels on the host.
fn perf(flags: &str, line: &str) -> Value {
    perf_by("direct", flags, line)
}

fn perf_by(way: &str, flags: &str, line: &str) -> Value {
    let program = env!("CARGO_BIN_EXE_warpverbs");
    let line =
        format!("{flags} -- {program} perf {line} --gpu simt --nic mlx5_0 --way {way} --json");
    let said = succeeds(&line);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}: {said}"))
}

fn column<'v>(measured: &'v Value, name: &str) -> Vec<&'v str> {
    let rows = measured["rows"].as_array().expect("rows");
    rows.iter().map(|row| row[name].as_str().expect("text")).collect()
}

#[test]
fn posting_is_measured_with_and_without_execution() {
    if !ready() {
        return;
    }
    // More WQEs than a ring has.
    let line = "issue -n 20 -g 1x1,2x64 -q 1,3 --depth 256";
    for (flags, data) in [("--consume", "none moved"), ("", "equal")] {
        let measured = perf(flags, line);
        assert_eq!(column(&measured, "data"), [data; 4], "{measured}");
        let parsed = |row: &Value| row["parsed"].as_u64().is_some_and(|parsed| parsed > 0);
        assert!(measured["rows"].as_array().unwrap().iter().all(parsed), "{measured}");
    }
    let measured = perf_by("proxy", "", "issue -n 20 -g 1x32 -q 1");
    assert_eq!(column(&measured, "data"), ["equal"], "{measured}");
}

#[test]
fn one_post_is_measured_with_and_without_execution() {
    if !ready() {
        return;
    }
    let sink = "WRITE by a kernel, NIC that only consumes";
    let measured = perf("--consume", "latency -n 50 -w 5");
    let what = column(&measured, "what");
    assert!(what.contains(&sink), "{measured}");
    assert!(column(&measured, "data").iter().all(|data| *data == "none moved"), "{measured}");
    let measured = perf("", "latency -n 50 -w 5");
    assert!(!column(&measured, "what").contains(&sink), "{measured}");
    assert_eq!(column(&measured, "data").iter().filter(|data| **data == "equal").count(), 2);
}

#[test]
fn two_processes_are_measured_on_a_device_by_either_poster() {
    if !ready() {
        return;
    }
    // Messages that complete together and one by one, and one that is cut into packets.
    let size = "-b 8 -e 64K -f 128 -n 40 -w 5";
    for (op, way) in
        [("write", "direct"), ("write", "proxy"), ("read", "direct"), ("send", "proxy")]
    {
        let measured = perf_by(way, "", &format!("{op} local {size}"));
        assert_eq!(column(&measured, "data"), ["equal"; 3], "{measured}");
        let why = measured["setting"]["nic"]["why"].as_str().expect("text");
        assert!(why.contains(way) && !why.contains("engine"), "{measured}");
    }
}

#[test]
fn the_soft_nic_is_what_it_was() {
    let mut command = run("--consume --");
    command.arg(env!("CARGO_BIN_EXE_warpverbs"));
    command.args("perf latency --gpu simt --nic soft -n 50 -w 5 --json".split(' '));
    let said = text(&command.output().unwrap().stdout);
    let measured: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(column(&measured, "data").iter().filter(|data| **data == "equal").count(), 2);
}
