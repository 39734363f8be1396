//! Both programs on this machine, each with our own NIC: the cases are right, and a NIC that is not
//! there is told.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_warpverbs-interop");

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is not there any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loopback addresses that no other run takes: the port is always 4791.
fn address(last: u8) -> String {
    let [.., a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, a | 1, b, last).to_string()
}

#[test]
fn our_nic_goes_through_all_cases_with_itself() {
    let (one, two) = (address(1), address(2));
    let serving = Command::new(PROGRAM).args(["--nic", "soft", "--bind", &one, "serve"]).spawn();
    let mut serving = Running(serving.expect("a server"));
    let run = ["--nic", "soft", "--bind", &two, "run", &one, "--mtu", "1024", "--json"];
    let file = tempfile::NamedTempFile::new().expect("a file");
    let run = run.map(OsStr::new).into_iter().chain([file.path().as_os_str()]);
    let out = Command::new(PROGRAM).args(run).stderr(Stdio::inherit()).output().expect("a run");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file.path()).expect("a report")).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let ways = |case: &str| rows.iter().filter(|row| row["case"] == case).count();
    assert_eq!((ways("SEND"), ways("fetch-add"), ways("READ, wrong key")), (24, 2, 2));
    assert!(rows.iter().all(|row| row["status"] == row["expected"]), "{text}");
    assert!(serving.0.wait().expect("its end").success());
}

#[test]
fn a_nic_that_is_not_there_is_named() {
    let run = ["--nic", "nosuch7", "--bind", "127.0.0.1", "serve"];
    let out = Command::new(PROGRAM).args(run).output().expect("a run");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    // Without RDMA in the kernel it is libibverbs that finds none.
    assert!(said.contains("nosuch7") || said.contains("ibv"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
