//! Queues that an mlx5 device reads by itself, which our provider makes through NVIDIA's libmlx5 by
//! firmware commands: the conformance suite, posted by the host and by kernels.

use super::{output, ready, run, succeeds};
use crate::common::text;
use std::collections::BTreeMap;
use std::fs;

/// Known differences: devices take no LOCAL_INVAL and SEND_INVAL of ordinary registrations.
const DIFFER: [&str; 3] = ["send_invalidate", "local_invalidate", "kernel_receives_invalidate"];

#[test]
fn the_conformance_suite_passes_where_the_device_reads_the_queues() {
    if !ready() {
        return;
    }
    let mut command = run("--");
    command.arg(env!("CARGO_BIN_EXE_warpverbs"));
    command.args(["conform", "--nic", "mlx5_0", "--way", "direct", "--gpu", "simt"]);
    let output = output(command);
    let said = text(&output.stdout);
    let of = |result: &str| -> Vec<String> {
        let lines = said.lines().filter(|line| line.starts_with(result));
        lines.filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect()
    };
    let context = || format!("{said}{}", text(&output.stderr));
    assert!(said.contains("queues by the device itself"), "{}", context());
    assert!(of("failed").is_empty() && of("stale").is_empty(), "{}", context());
    assert_eq!(of("differs"), DIFFER, "{}", context());
    let passed = of("passed");
    assert!(passed.len() > 60, "{}", context());
    assert!(passed.iter().filter(|name| name.starts_with("kernel_")).count() > 12);
}

/// Calls of a record that succeeded, by object and method: the first 24 bytes that a call reads are
/// its header, the length first, then these two, of 16 bits each and least significant byte first.
fn calls(record: &str) -> BTreeMap<(u16, u16), usize> {
    let mut counts = BTreeMap::new();
    for call in record.split("call\n").filter(|call| call.ends_with("= 0\n")) {
        let header = call.lines().next().and_then(|line| line.split(' ').nth(2)).unwrap();
        let word = |at| u16::from_str_radix(&header[at..at + 4], 16).unwrap().swap_bytes();
        *counts.entry((word(4), word(8))).or_insert(0) += 1;
    }
    counts
}

#[test]
fn everything_that_is_made_for_the_direct_way_is_given_back() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let program = env!("CARGO_BIN_EXE_warpverbs");
    // Some endpoints work, some fail, and some are not made.
    let cases = "--case write --case no_receive --case peer_gone --case shared_receives";
    let conform = format!("conform --nic mlx5_0 --way direct --host-only {cases}");
    succeeds(&format!("--record {} -- {program} {conform}", record.display()));
    let counts = calls(&fs::read_to_string(record).unwrap());
    let count = |object, method| counts.get(&(object, method)).copied().unwrap_or(0);
    // Objects of firmware commands, umems: of each, what makes one and what ends one.
    for (object, made, ended) in [(0x1001, 0x1000, 0x1001), (0x1002, 0x1000, 0x1001)] {
        let (made, ended) = (count(object, made), count(object, ended));
        assert!(made > 5, "{object:#x}: {counts:x?}");
        assert_eq!(made, ended, "{object:#x}: {counts:x?}");
    }
}
