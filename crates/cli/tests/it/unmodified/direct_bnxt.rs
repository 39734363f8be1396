//! Queues that a bnxt_re device reads by itself, which our provider makes by functions of Broadcom's own
//! libbnxt_re. Those of the preloaded library are beside rdma-core's libbnxt_re, which is as it is.

use super::conform::Suite;
use super::unmapped::{compiled, passes_on};
use super::{devices, output, ready, run};
use crate::common::text;
use std::fs;
use std::process::Command;

/// Known differences: devices take no SEND_INVAL of ordinary registrations.
const DIFFER: [&str; 2] = ["send_invalidate", "kernel_receives_invalidate"];

/// Whether there is what the tests need.
fn has_bnxt() -> bool {
    ready() && devices().contains(&"bnxt_re")
}

#[test]
fn the_conformance_suite_passes_by_the_vendors_functions() {
    if !has_bnxt() {
        return;
    }
    let suite = Suite::run_on("bnxt_re", "--way direct --gpu simt");
    let said = &suite.said;
    assert!(said.contains("queues by the device itself"), "{said}");
    assert!(suite.of("failed").is_empty() && suite.of("stale").is_empty(), "{said}");
    assert_eq!(suite.of("differs"), DIFFER, "{said}");
    let passed = suite.of("passed");
    assert!(passed.len() > 50, "{said}");
    assert!(passed.iter().filter(|name| name.starts_with("kernel_")).count() > 10, "{said}");
}

/// The same, with all that was made given back.
#[test]
fn objects_of_the_vendors_functions_are_given_back() {
    if !has_bnxt() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_warpverbs");
    let cases =
        "--case write_sizes --case no_receive --case kernel_write --case reset_and_reconnect";
    let conform = format!("{program} conform --nic bnxt_re0 --way direct --gpu simt {cases}");
    let output = output(run(&format!("--verbose --device bnxt_re -- {conform}")));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    for word in ["object(s) left", "is left", "rang no queue"] {
        assert!(!stderr.contains(word), "{stdout}{stderr}");
    }
}

/// A program that finds the functions by `dlopen`, and lays out its queues as GPU libraries do.
#[test]
fn queues_as_gpu_libraries_lay_them_out_are_executed() {
    let folder = tempfile::tempdir().unwrap();
    let program = has_bnxt().then(|| compiled("dv", folder.path())).flatten();
    if let Some(program) = program {
        passes_on("bnxt_re", &program, &std::process::id().to_string());
    }
}

/// A library without the functions is refused by its name, and by the first function that it lacks: that of
/// rdma-core, if nothing else is named so, and an old one of the vendor's.
#[test]
fn a_library_without_the_functions_is_named() {
    if !has_bnxt() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (source, old) = (path("old.c"), path("libbnxt_re.so"));
    fs::write(&source, "int bnxt_re_dv_umem_reg(void) { return 0; }\n").unwrap();
    let mut compiler = Command::new("cc");
    assert!(compiler.args(["-shared", "-fPIC", "-o", &old, &source]).status().unwrap().success());
    let program = env!("CARGO_BIN_EXE_warpverbs");
    let conform =
        format!("{program} conform --nic bnxt_re0 --way direct --host-only --case write_sizes");
    let refused = |library: &str, expected: &[&str]| {
        let mut command = run(&format!("--device bnxt_re -- {conform}"));
        command.env("WARPVERBS_LIBBNXT_RE", library);
        let output = output(command);
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
    };
    refused(&old, &[&old, "has no bnxt_re_dv_umem_dereg", "Broadcom's own package"]);
    let nowhere = path("nowhere.so");
    refused(&nowhere, &["there is no", &nowhere, "bnxt_re_dv_umem_reg"]);
}

/// Each call fails in turn: the case fails with a reason, and nothing is left on the device.
#[test]
fn a_step_that_fails_leaves_nothing_of_the_vendors_objects() {
    if !has_bnxt() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_warpverbs");
    let conform =
        format!("{program} conform --nic bnxt_re0 --way direct --host-only --case no_bytes");
    let mut by_vendor = 0;
    for call in 1.. {
        assert!(call < 200, "there is no end of calls");
        let fault = format!("--verbose --device bnxt_re --fail {call}:8");
        let output = output(run(&format!("{fault} -- {conform}")));
        let said = text(&output.stdout) + &text(&output.stderr);
        for word in ["panicked", "object(s) left", "is left", "are left"] {
            assert!(!said.contains(word), "{fault}: {said}");
        }
        if !said.contains("fails on purpose") {
            assert!(output.status.success(), "{said}");
            break;
        }
        let by = said.contains("bnxt_re_dv_") && said.contains("ENOMEM");
        assert!(!by || !output.status.success(), "{fault}: {said}");
        by_vendor += u32::from(by);
    }
    // Two endpoints: two CQs and a QP each, which changes its state three times.
    assert_eq!(by_vendor, 12);
}
