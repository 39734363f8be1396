//! Both programs on this machine, each with our own NIC: the cases are right, and a NIC that is not
//! there is told.

use std::process::{Command, Output};

fn local(flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpverbs-interop"));
    command.arg("local").args(flags).output().expect("a run")
}

#[test]
fn our_nic_goes_through_all_cases_with_itself() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let out = local(&["--mtu", "1024", "--json", file.path().to_str().expect("a name")]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file.path()).expect("a report")).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let tried = |row: &serde_json::Value| row["tried"].as_array().expect("cases").clone();
    // The NIC at either end is called so.
    let of = |case: &str| rows.iter().filter(|row| row["case"] == case).flat_map(tried).count();
    assert_eq!((of("SEND"), of("fetch-add"), of("READ, wrong key")), (24, 2, 2));
    let right =
        |row: &serde_json::Value| tried(row).iter().all(|one| one["status"] == row["expected"]);
    assert!(rows.iter().all(right), "{text}");
    assert!(text.contains("soft and soft") && text.contains("ok, 24 sizes and MTUs"), "{text}");
}

#[test]
fn a_nic_that_is_not_there_is_named() {
    let out = local(&["--nic", "nosuch7"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    // Without RDMA in the kernel it is libibverbs that finds none.
    assert!(said.contains("nosuch7") || said.contains("ibv"), "{said}");
}
