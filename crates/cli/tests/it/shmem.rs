//! `perf shmem` with ranks as threads, and as processes of launchers.

use super::common::{fails, finish, free_port, json, program, succeeds, text};
use serde_json::Value;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// Few calls, on host SIMT.
const FEW: &str = "-n 20 -w 2 --transfers 2 -e 64K --json";

/// The software NIC, with queues of every format.
const NICS: [&str; 3] = ["soft", "soft-bnxt", "soft-ionic"];

fn rows(document: &Value) -> &Vec<Value> {
    assert_eq!(document["command"], "perf shmem");
    document["rows"].as_array().expect("rows")
}

fn is_complete(document: &Value) {
    let rows = rows(document);
    assert!(rows.len() > 20, "{document}");
    for row in rows {
        let figure = row["us"].as_f64().or(row["gb_per_s"].as_f64());
        assert!(figure > Some(0.0), "{row}");
        let compared = row["data"] == "equal" || row["data"] == "none moved";
        assert!(compared, "{row}");
    }
}

#[test]
fn ranks_of_one_process_measure_all_tables() {
    let document = json(&format!("perf shmem --gpus simt,simt {FEW}"));
    is_complete(&document);
    assert!(rows(&document).iter().all(|row| row["route"] != "rdma"), "{document}");
    // The machine's time for a cache line stands beside the times of the rows.
    let notes = document["notes"].as_array().expect("notes");
    let said =
        notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("cache line")));
    assert!(said, "{document}");
}

#[test]
fn ranks_measure_by_rdma_where_the_route_is_forced() {
    for nic in NICS {
        let line =
            format!("perf shmem --gpus simt,simt --nic {nic} --tables exchange,calls,stream {FEW}");
        let mut program = program(&line);
        let out = program.env("WARPVERBS_SHMEM_ROUTE", "rdma").output().expect("the program");
        assert!(out.status.success(), "{nic}: {}{}", text(&out.stdout), text(&out.stderr));
        let document: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        is_complete(&document);
        let by_rdma =
            |row: &Value| row["route"].as_str().is_some_and(|route| route.contains("rdma"));
        assert!(rows(&document).iter().all(by_rdma), "{document}");
    }
}

#[test]
fn layers_of_experts_are_measured_by_rdma() {
    for nic in NICS {
        let layers = "--tokens 4 --layout flat,rank -n 3 -w 1";
        let line = format!("perf ep --gpus simt,simt --route rdma --nic {nic} {layers} --json");
        let document = json(&line);
        assert_eq!(document["command"], "perf ep");
        let rows = document["rows"].as_array().expect("rows");
        assert!(rows.len() == 2 && rows.iter().all(|row| row["data"] == "equal"), "{document}");
    }
}

const LAUNCHED: &str = "perf shmem --gpus simt --tables exchange,calls,barrier,life";

#[test]
fn processes_with_torchruns_variables_are_ranks() {
    let port = free_port().to_string();
    let start = |rank: u32| {
        let mut command = program(&format!("{LAUNCHED} {FEW}"));
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a rank")
    };
    let ranks = [start(0), start(1)].map(finish);
    for out in &ranks {
        assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    }
    // Rank 0 prints.
    is_complete(&serde_json::from_slice(&ranks[0].stdout).expect("JSON"));
    assert_eq!(text(&ranks[1].stdout), "");
}

#[test]
fn processes_of_open_mpi_are_ranks() {
    let mut command = Command::new("mpirun.openmpi");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
    let inner = program(&format!("{LAUNCHED} {FEW}"));
    command.arg(inner.get_program()).args(inner.get_args());
    for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "PMI_RANK", "PMI_SIZE"] {
        command.env_remove(name);
    }
    command.env("MASTER_PORT", free_port().to_string()).stdin(Stdio::null());
    let out = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(std::env::var_os("WARPVERBS_REQUIRE_MPI").is_none(), "{error}");
            let line = "SKIPPED perf shmem by mpirun.openmpi: it is not installed\n";
            return std::io::stderr().write_all(line.as_bytes()).expect("stderr");
        }
        out => out.expect("mpirun"),
    };
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    is_complete(&serde_json::from_slice(&out.stdout).expect("one document, of rank 0"));
}

#[test]
fn tables_are_printed_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let plot = folder.path().join("plot.svg");
    let few = "-n 5 -w 0 --transfers 1 -e 64K";
    let tables = "--tables calls,stream,barrier";
    let line = format!("perf shmem --gpus simt,simt {tables} {few} --plot {}", plot.display());
    let table = succeeds(&line);
    assert_eq!(table.matches("of all").count(), 6, "{table}");
    let svg = std::fs::read_to_string(&plot).expect("the plot");
    assert!(roxmltree::Document::parse(&svg).is_ok(), "{svg}");
    for word in ["blocks", "size", "bandwidth", "put, block", "put, quiet, warp"] {
        assert!(svg.contains(word), "{word}: {svg}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    fails("perf shmem --gpus simt", &["--gpus", "2 to 64"]);
    fails("perf shmem --gpus simt,simt --transfers 0", &["--transfers"]);
    let mut alone = program("perf shmem --gpus simt");
    let out = alone.env("RANK", "0").env("WORLD_SIZE", "1").output().expect("the program");
    let stderr = text(&out.stderr);
    assert!(!out.status.success() && stderr.contains("torchrun started 1"), "{stderr}");
}
