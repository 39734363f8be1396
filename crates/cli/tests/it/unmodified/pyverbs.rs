//! rdma-core's own tests, in Python, as Debian ships them with `python3-pyverbs`.

use super::{devices, first, output, ready, run_on, skip};
use crate::common::text;
use std::fs;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "/usr/share/doc/rdma-core/tests";

/// Modules of tests, and how many of each pass at least, on mlx5 and on bnxt_re. The others are skipped, because
/// of what the device does not claim or the machine does not have; none fails but those of [`FAILS`].
const MODULES: &[(&str, usize, usize)] = &[
    ("test_addr", 3, 3),
    ("test_atomic", 7, 7),
    ("test_cq", 4, 3),
    ("test_cq_events", 2, 2),
    ("test_cqex", 4, 1),
    ("test_device", 12, 12),
    ("test_mlx5_cq", 5, 0),
    ("test_mlx5_devx", 1, 0),
    ("test_mlx5_raw_wqe", 1, 0),
    ("test_mlx5_uar", 1, 0),
    ("test_mr", 1, 1),
    ("test_parent_domain", 5, 0),
    ("test_pd", 4, 4),
    ("test_qp", 16, 5),
    ("test_qpex", 16, 0),
    ("test_relaxed_ordering", 2, 2),
];

/// Tests that fail on bnxt_re: libbnxt_re of v44 cuts depths that are too large, instead of refusing them.
const FAILS: [&str; 2] = [
    "test_create_raw_qp_ex_with_illegal_caps_max_recv_wr",
    "test_create_raw_qp_ex_with_illegal_caps_max_send_wr",
];

/// Tests that fail, or cannot be run, by the output of all; in the order of their names.
fn failed(said: &str) -> Vec<&str> {
    let named = |line: &'_ str| line.starts_with("FAIL: ") || line.starts_with("ERROR: ");
    let lines = said.lines().filter(|line| named(line));
    let mut failed: Vec<_> = lines.filter_map(|line| line.split(' ').nth(1)).collect();
    failed.sort_unstable();
    failed
}

/// Copies the tests, which the package has compressed.
fn unpack(to: &Path) {
    let tests = to.join("tests");
    fs::create_dir(&tests).unwrap();
    for file in fs::read_dir(FOLDER).unwrap().flatten() {
        fs::copy(file.path(), tests.join(file.file_name())).unwrap();
        if file.path().extension().is_some_and(|extension| extension == "gz") {
            let mut unzip = Command::new("gzip");
            unzip.arg("-d").arg(tests.join(file.file_name()));
            assert!(unzip.status().unwrap().success(), "{:?}", file.file_name());
        }
    }
}

/// Tests of `module` that pass, by the output of all.
fn passed(said: &str, module: &str) -> usize {
    let of = format!("(tests.{module}.");
    // A test is a line with its name, perhaps one with its description, and the result behind it.
    let (mut current, mut found) = (false, 0);
    for line in said.lines() {
        if line.starts_with("test_") {
            current = line.contains(&of);
        }
        found += usize::from(current && line.ends_with(" ... ok"));
    }
    found
}

#[test]
fn rdma_cores_own_tests_pass() {
    if !ready() {
        return;
    }
    let packages = Path::new("/usr/lib/python3/dist-packages");
    if !["pyverbs", "scapy"].iter().all(|name| packages.join(name).exists()) {
        return skip("needs the packages python3-pyverbs and python3-scapy");
    }
    if std::env::var_os("WARPVERBS_RDMA_CORE").is_some() {
        return eprintln!(
            "SKIPPED: the system's pyverbs needs the private interface of its libibverbs"
        );
    }
    // Some systems install packages without their documentation.
    if !Path::new(FOLDER).exists() {
        return eprintln!("SKIPPED: needs {FOLDER}");
    }
    let folder = tempfile::tempdir().unwrap();
    unpack(folder.path());
    for device in devices() {
        let mut command = run_on(device)("--");
        command.current_dir(folder.path()).arg("/usr/bin/python3");
        command.args(["tests/run_tests.py", "--dev", first(device), "-v"]);
        command.args(MODULES.iter().map(|(module, ..)| format!("tests.{module}")));
        let output = output(command);
        let said = text(&output.stderr);
        let expected = if *device == "bnxt_re" { &FAILS[..] } else { &[] };
        assert_eq!(failed(&said), expected, "{device}: {said}");
        assert_eq!(output.status.success(), expected.is_empty(), "{device}: {said}");
        for &(module, mlx5, bnxt) in MODULES {
            let expected = if *device == "mlx5" { mlx5 } else { bnxt };
            assert!(passed(&said, module) >= expected, "{module}, not {expected}: {said}");
        }
    }
}
