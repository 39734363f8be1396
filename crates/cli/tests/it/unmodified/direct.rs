//! Queues that an mlx5 device reads by itself, which our provider makes through NVIDIA's libmlx5 by
//! firmware commands: the conformance suite, posted by the host and by kernels.

use super::conform::Suite;
use super::{PATIENCE, kill, output, ready, run, succeeds};
use crate::common::text;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Known differences: devices take no LOCAL_INVAL and SEND_INVAL of ordinary registrations.
const DIFFER: [&str; 3] = ["send_invalidate", "local_invalidate", "kernel_receives_invalidate"];

#[test]
fn the_conformance_suite_passes_where_the_device_reads_the_queues() {
    if !ready() {
        return;
    }
    let suite = Suite::run("--way direct --gpu simt");
    let said = &suite.said;
    assert!(said.contains("queues by the device itself"), "{said}");
    assert!(suite.of("failed").is_empty() && suite.of("stale").is_empty(), "{said}");
    assert_eq!(suite.of("differs"), DIFFER, "{said}");
    let passed = suite.of("passed");
    assert!(passed.len() > 60, "{said}");
    assert!(passed.iter().filter(|name| name.starts_with("kernel_")).count() > 12);
}

/// Cases of the suite that only the host posts, by this program.
fn conform(cases: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_warpverbs");
    let cases: String = cases.iter().map(|case| format!(" --case {case}")).collect();
    format!("{program} conform --nic mlx5_0 --way direct --host-only{cases}")
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
    // Some endpoints work, some fail, and some are not made.
    let conform = conform(&["write", "no_receive", "peer_gone", "shared_receives"]);
    succeeds(&format!("--record {} -- {conform}", record.display()));
    let counts = calls(&fs::read_to_string(record).unwrap());
    let count = |object, method| counts.get(&(object, method)).copied().unwrap_or(0);
    // Objects of firmware commands, umems: of each, what makes one and what ends one.
    for (object, made, ended) in [(0x1001, 0x1000, 0x1001), (0x1002, 0x1000, 0x1001)] {
        let (made, ended) = (count(object, made), count(object, ended));
        assert!(made > 5, "{object:#x}: {counts:x?}");
        assert_eq!(made, ended, "{object:#x}: {counts:x?}");
    }
}

/// The release of rdma-core that programs here load, from the name of its libmlx5.
pub(super) fn release() -> u32 {
    let folder = match std::env::var_os("WARPVERBS_RDMA_CORE") {
        Some(folder) => Path::new(&folder).join("lib"),
        None => format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH).into(),
    };
    let library = fs::canonicalize(folder.join("libmlx5.so.1")).unwrap();
    let name = library.file_name().unwrap().to_str().unwrap();
    let number = name.split('.').nth(4).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{name} has no release, expected libmlx5.so.1.NN.RELEASE.N"))
}

/// Of two lanes that store to one register in one instruction, an AMD GPU may send one store: QPs to which kernels
/// post have a register each. Without a kernel they share that of the domain.
#[test]
fn each_queue_pair_of_kernels_rings_a_register_of_its_own() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let registers = |gpu: &str, case: &str| {
        let program = env!("CARGO_BIN_EXE_warpverbs");
        let conform =
            format!("{program} conform --nic mlx5_0 --way direct {gpu} --case {case} --brief");
        let _ = fs::remove_file(&record);
        let said = succeeds(&format!("--record {} -- {conform}", record.display()));
        assert!(said.contains("1 passed"), "{said}");
        let counts = calls(&fs::read_to_string(&record).unwrap());
        let count = |method| counts.get(&(0x1008, method)).copied().unwrap_or(0);
        assert_eq!(count(0x1000), count(0x1001), "given back: {counts:x?}");
        count(0x1000)
    };
    let by_host = registers("--host-only", "write_sizes");
    let by_kernel = registers("--gpu simt", "kernel_read");
    // Before, libmlx5 gives all users of a context the same register.
    let own = if release() < 45 { 0..=0 } else { 1..=100 };
    let more = by_kernel.checked_sub(by_host).expect("no fewer than without kernels");
    assert!(own.contains(&more), "release {}: {by_host}, then {by_kernel}", release());
}

/// The statuses that firmware answers, without success.
const STATUSES: [u8; 13] = [1, 2, 3, 4, 5, 6, 8, 9, 0xa, 0xf, 0x10, 0x50, 0x51];

/// One run of a case whose CALL-th call fails; whether there was such a call.
fn one_call_fails(call: usize, status: u8) -> bool {
    let conform = conform(&["no_bytes"]);
    let fault = format!("{call}:{status}");
    let output = output(run(&format!("--verbose --fail {fault} -- {conform}")));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let context = || format!("--fail {fault}: {:?}\n{stdout}{stderr}", output.status);
    assert!(output.status.code().is_some_and(|code| code < 128), "{}", context());
    assert!(!stderr.contains("panicked") && !stderr.contains("object(s) left"), "{}", context());
    let injected = stderr.contains("fails on purpose");
    assert!(injected || output.status.success(), "{}", context());
    // The failure of our command is said in one line. Libraries may do without what they tried.
    if injected && stderr.contains("DEVX_OBJ") {
        let said = stdout.lines().chain(stderr.lines()).filter(|line| line.contains("syndrome"));
        let said: Vec<&str> = said.collect();
        let wanted = format!("status {status:#x}");
        assert!(said.len() == 1 && said[0].contains(&wanted), "{said:?} {}", context());
        let advice = said[0].split_once("syndrome").and_then(|(_, rest)| rest.split_once("; "));
        assert!(advice.is_some(), "no advice: {}", context());
        assert!(!output.status.success(), "{}", context());
    }
    injected
}

#[test]
fn a_step_that_fails_leaves_nothing_on_the_device() {
    if !ready() {
        return;
    }
    let mut call = 1;
    // Every step fails in one way, and each way comes about.
    while one_call_fails(call, STATUSES[call % STATUSES.len()]) {
        call += 1;
        assert!(call < 200, "there is no end of calls");
    }
    assert!(call > 30, "{call} calls make two endpoints?");
}

/// How many calls a record has.
fn recorded(record: &Path) -> usize {
    fs::read_to_string(record).unwrap_or_default().matches("call\n").count()
}

/// A process that is killed loses its descriptor, and the device all that was made through it. What
/// `warpverbs run` made for it goes too, and the next process has the device for itself.
#[test]
fn a_process_that_is_killed_leaves_nothing() {
    if !ready() {
        return;
    }
    let conform = conform(&["write"]);
    let mut seed = u64::from(std::process::id());
    println!("seed {seed}");
    for _ in 0..6 {
        // Anywhere between opening the device and the end of the cases.
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let calls = (seed >> 33) as usize % 120;
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record");
        let mut command = run(&format!("--record {} -- {conform}", record.display()));
        command.env("TMPDIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        while recorded(&record) < calls && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "no {calls} calls");
            // Leaves the processor to the program.
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(&mut child);
        let status = child.wait().unwrap();
        // It may have come to its end before.
        assert!(matches!(status.code(), Some(0 | 137)), "killed at call {calls}: {status}");
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name != "record").collect();
        assert!(left.is_empty(), "killed at call {calls}: {left:?}");
    }
    succeeds(&format!("-- {conform}"));
}

/// The event that a peer's wrong access raises at the QP that it was sent to. libibverbs reports none of
/// QPs that it has not made.
#[test]
fn events_of_queue_pairs_are_reported() {
    if !ready() {
        return;
    }
    let conform = conform(&["bad_rkey"]);
    let mut command = run(&format!("-- {conform}"));
    command.env("WARPVERBS_LOG", "info");
    let output = output(command);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    // The requester's own event may come first.
    let mut events = stderr.lines().filter(|line| line.contains("event of the device"));
    assert!(events.any(|line| line.contains("QpAccessError")), "{stdout}{stderr}");
}
