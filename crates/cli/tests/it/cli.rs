//! The program as a user runs it, on the host SIMT device and the software NIC.

use super::common::{fails, json, succeeds, text};
use serde_json::Value;
use std::process::Command;

#[test]
fn doctor_describes_this_machine_in_both_forms() {
    let words = succeeds("doctor");
    for part in ["Choices of auto", "Where kernels can run", "simt", "locked memory", "NVRTC"] {
        assert!(words.contains(part), "{part} is not in {words}");
    }
    let report = json("doctor --json");
    assert_eq!(report["schema"], 1);
    assert!(report["cpu"]["cores"].as_u64().is_some_and(|n| n > 0));
    let gpus = report["gpus"].as_array().expect("a list of devices");
    assert!(gpus.iter().any(|g| g["name"] == "simt" && g["info"].is_object()), "{gpus:?}");
    assert!(gpus.iter().all(|g| g["info"].is_object() || g["unusable"].is_string()), "{gpus:?}");
    assert_eq!(report["auto"]["nic"]["choice"], "soft");
}

#[test]
fn loopback_measures_and_checks_every_row() {
    let line =
        "perf loopback --gpu simt --nic soft -b 8 -e 4096 -f 512 -n 20 -w 4 -q 1,3 -t 40 --json";
    let rows = json(line)["rows"].clone();
    let rows = rows.as_array().expect("rows");
    // Host and kernel, two sizes, two numbers of queue pairs.
    assert_eq!(rows.len(), 8, "{rows:?}");
    for row in rows {
        assert_eq!(row["data"], "equal", "{row}");
        assert!(row["latency"]["p50_ns"].as_u64().is_some_and(|ns| ns > 0), "{row}");
        assert!(row["messages_per_s"].as_f64().is_some_and(|r| r > 0.0), "{row}");
        assert!(row["messages"].as_u64() >= Some(20 * row["qps"].as_u64().unwrap_or(9)), "{row}");
    }
}

#[test]
fn other_operations_are_measured_too() {
    for line in [
        "perf loopback --gpu simt --op send -b 1 -e 70000 -f 70000 -n 1500 -w 3",
        "perf loopback --gpu simt --op read -b 100 -e 100 -n 10 -w 0",
        "perf loopback --gpu simt --op atomic -n 10 -w 3 -q 2",
    ] {
        // The limit ends a hang: beside many busy processes an operation takes tens of milliseconds.
        let table = succeeds(&format!("{line} --row-limit 600"));
        let rows = if line.contains("send") { 4 } else { 2 };
        assert_eq!(table.matches("equal").count(), rows, "{table}");
    }
}

#[test]
fn comparisons_have_their_yardstick_in_the_same_run() {
    let memcpy = json("perf memcpy -b 64K -e 1M -f 16 -n 8 --json");
    assert_eq!(memcpy["rows"].as_array().map(Vec::len), Some(2));
    assert!(memcpy["rows"][0]["ratio"].as_f64().is_some_and(|r| r > 0.0), "{memcpy}");
    let latency = json("perf latency --gpu simt -n 50 -w 5 --json");
    assert!(latency["rows"].as_array().is_some_and(|rows| rows.len() >= 2), "{latency}");
    let idle = json("perf idle-qps -n 200 --idle 0,8 --json");
    assert_eq!(idle["rows"].as_array().map(Vec::len), Some(2));
    let issue = json("perf issue --gpu simt -n 4 -g 1x32 -q 1 --json");
    assert!(issue["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{issue}");
}

#[test]
fn bad_requests_are_refused_before_anything_starts() {
    fails("perf loopback -b 0", &["-b is 0", "1 to"]);
    fails("perf loopback -b 1.5K", &["1.5K"]);
    fails("perf memcpy -n 0", &["-n is 0"]);
    fails("perf idle-qps --idle 100000", &["--idle is 100000"]);
}

#[test]
fn an_unknown_device_or_nic_is_named() {
    fails("perf loopback --gpu abacus", &["abacus"]);
    fails("perf loopback --gpu simt --nic mlx5_77", &["mlx5_77", "soft"]);
    fails("perf nothing", &["nothing"]);
    fails("tune", &["tune"]);
}

#[test]
fn a_reader_that_has_left_ends_the_program_without_a_word() {
    for line in ["doctor", "doctor --json", "perf idle-qps -n 100 --idle 0"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let out = Command::new(env!("CARGO_BIN_EXE_warpverbs"))
            .args(line.split_whitespace())
            .stdout(writer)
            .output()
            .unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(1), String::new()), "{line}");
    }
}

#[test]
fn doctor_registers_memory_with_every_device_that_libibverbs_drives() {
    let Some(library) = warpverbs_verbs::testing::fake_library() else { return };
    let doctor = |nics: &str, failures: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_warpverbs"))
            .args(["doctor", "--json"])
            .env("WARPVERBS_LIBIBVERBS", library)
            .env("WARPVERBS_NICS", nics)
            .env("FAKE_IBVERBS_FAIL", failures)
            .output()
            .expect("doctor");
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice::<Value>(&out.stdout).expect("JSON")["rdma"].clone()
    };
    let of = |rdma: &Value, nic: &str| {
        let rows = rdma["gpu_memory"].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row["gpu"] == "simt" && row["nic"] == nic)
    };
    let rdma = doctor("", "");
    assert_eq!(rdma["library"]["devices"], serde_json::json!(["fake0", "fake1"]));
    assert_eq!(of(&rdma, "fake1").expect("a row")["how"], "host memory");
    let rdma = doctor("^fake1", "ibv_reg_mr:12");
    let row = of(&rdma, "fake0").expect("a row");
    assert!(row["how"].is_null(), "{row}");
    assert!(row["why"].as_str().is_some_and(|why| why.contains("ENOMEM")), "{row}");
    assert!(of(&rdma, "fake1").is_none(), "not selected");
    let rdma = doctor("mlx5_9", "");
    let why = rdma["library"]["no_device"].as_str().unwrap_or_default();
    assert!(why.contains("mlx5_9") && why.contains("fake0, fake1"), "{why}");
}

#[test]
fn the_path_between_two_devices_is_told() {
    let words = succeeds("doctor path simt soft");
    assert!(words.contains("1. kernels on simt") && words.contains("held back by"), "{words}");
    let way = json("doctor path soft simt --json");
    assert_eq!((&way["from"], &way["to"]), (&"soft".into(), &"simt".into()));
    assert!(way["steps"].as_array().is_some_and(|steps| steps.len() == 3), "{way}");
    fails("doctor path simt mlx5_99", &["mlx5_99", "simt", "soft"]);
}

#[test]
fn rows_before_an_error_are_printed() {
    // Room for messages of 1 MiB, but not for those of 1 GiB.
    let line = format!(
        "ulimit -v 1600000; exec {} perf memcpy -b 1M -e 1G -f 1024 -n 5 --json",
        env!("CARGO_BIN_EXE_warpverbs")
    );
    let out = Command::new("sh").args(["-c", &line]).output().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(out.status.code(), Some(1));
    let rows: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(rows["rows"].as_array().map(Vec::len), Some(1), "{rows}");
    assert!(text(&out.stderr).contains("1 GiB"), "{}", text(&out.stderr));
}

#[test]
fn flags_mean_the_same_in_every_command() {
    // Without warm-up, and on more queue pairs than a NIC has unless it is asked for more.
    let few = "-b 8 -e 8 -n 2 -w 0 --json";
    let document = json(&format!("perf loopback --gpu simt --nic soft0 --post host {few} -q 600"));
    assert_eq!(document["rows"][0]["qps"], 600, "{document}");
    for flags in ["", "--gpu simt"] {
        let document = json(&format!("perf write local {few} {flags}"));
        assert_eq!(document["rows"][0]["latency"]["samples"], 2, "{document}");
    }
    let issue = json("perf issue --gpu simt -n 1 -g 1x1 -q 300 --depth 128 --json");
    assert_eq!(issue["rows"][0]["qps"], 300, "{issue}");
    for command in ["perf loopback", "perf write local", "perf issue"] {
        fails(&format!("{command} -q 5000"), &["-q is 5000, expected 1 to 4096"]);
    }
    // The software NIC by its name.
    succeeds("conform --network 127.0.0.1 --nic soft0 --host-only --brief --case write_sizes");
}

/// The software NIC executes queues of the other formats: none of them only consumes.
#[test]
fn queues_of_every_format_are_measured() {
    for nic in ["soft-bnxt", "soft-ionic"] {
        let latency = json(&format!("perf latency --gpu simt --nic {nic} -n 50 -w 5 --json"));
        let rows = latency["rows"].as_array().expect("rows");
        let posted =
            |row: &&Value| row["what"].as_str().is_some_and(|w| w.contains("8-byte WRITE"));
        assert_eq!(rows.iter().filter(posted).count(), 2, "{latency}");
        assert!(rows.iter().filter(posted).all(|row| row["data"] == "equal"), "{latency}");
        // A ring that is written several times over, and one that is not written to its end.
        let line =
            format!("perf issue --gpu simt --nic {nic} -n 9 -g 2x64 -q 1,2 --depth 512 --json");
        let issue = json(&line);
        let rows = issue["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2, "{issue}");
        for row in rows {
            assert_eq!(row["data"], "equal", "{row}");
            assert!(row["parsed"].as_u64() >= Some(256), "{row}");
        }
        for op in ["write", "send", "read", "atomic"] {
            let line =
                format!("perf loopback --gpu simt --nic {nic} --op {op} -b 8 -e 8 -n 40 -w 3 -q 2");
            assert_eq!(succeeds(&line).matches("equal").count(), 2, "{line}");
        }
        for ends in ["write local", "send local", "send local --gpu simt"] {
            let line = format!("perf {ends} --nic {nic} -b 8 -e 4096 -f 512 -n 40 -w 3 --json");
            assert_eq!(json(&line)["rows"].as_array().map(Vec::len), Some(2), "{line}");
        }
    }
}
