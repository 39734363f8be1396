//! Queues that a device reads by itself, which our provider makes by functions of a vendor's own library: what tests
//! of bnxt_re and of ionic share. Those functions of the preloaded library are beside rdma-core's library of the same
//! name, which is as it is.

use super::conform::Suite;
use super::unmapped::{compiled, passes_on};
use super::{devices, first, output, ready, rings_queues_alone, run};
use crate::common::text;
use std::fs;
use std::process::Command;

/// A device whose vendor's library has such functions.
pub(super) struct Vendor {
    /// Its kind.
    pub(super) device: &'static str,
    /// Cases of the conformance suite with known differences.
    pub(super) differ: &'static [&'static str],
    /// A program in C that makes queues as GPU libraries do.
    pub(super) program: &'static str,
    /// The library, without the ending.
    pub(super) library: &'static str,
    /// The variable that names another file.
    pub(super) variable: &'static str,
    /// Of its functions that are needed the first two.
    pub(super) functions: [&'static str; 2],
    /// Calls that make and change queues, as errors name them.
    pub(super) calls: &'static [&'static str],
}

impl Vendor {
    /// Whether there is what the tests need.
    fn is_here(&self) -> bool {
        let is_here = ready() && devices().contains(&self.device);
        if !is_here {
            eprintln!("SKIPPED: needs rdma-core with {}", self.library);
        }
        is_here
    }

    fn conform(&self, flags: &str) -> String {
        let (program, nic) = (env!("CARGO_BIN_EXE_warpverbs"), first(self.device));
        format!("{program} conform --nic {nic} --way direct {flags}")
    }

    pub(super) fn passes_the_conformance_suite(&self) {
        if !self.is_here() {
            return;
        }
        let suite = Suite::run_on(self.device, "--way direct --gpu simt");
        let said = &suite.said;
        assert!(said.contains("queues by the device itself"), "{said}");
        assert!(suite.of("failed").is_empty() && suite.of("stale").is_empty(), "{said}");
        assert_eq!(suite.of("differs"), self.differ, "{said}");
        let passed = suite.of("passed");
        assert!(passed.len() > 50, "{said}");
        assert!(passed.iter().filter(|name| name.starts_with("kernel_")).count() > 10, "{said}");
    }

    /// Some of the cases, with all that was made given back.
    pub(super) fn gives_everything_back(&self) {
        if !self.is_here() {
            return;
        }
        let cases = "--gpu simt --case write_sizes --case no_receive --case kernel_write \
                     --case reset_and_reconnect";
        let line = format!("--verbose --device {} -- {}", self.device, self.conform(cases));
        let output = output(run(&line));
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
        for word in ["object(s) left", "is left", "are left"] {
            assert!(!stderr.contains(word), "{stdout}{stderr}");
        }
        rings_queues_alone(&stderr);
    }

    /// A program that finds the functions by `dlopen`.
    pub(super) fn executes_queues_of_gpu_libraries(&self) {
        let folder = tempfile::tempdir().unwrap();
        let program = self.is_here().then(|| compiled(self.program, folder.path())).flatten();
        if let Some(program) = program {
            passes_on(self.device, &program, &std::process::id().to_string());
        }
    }

    /// A library without the functions is refused by its name, and by the first function that it lacks: that of
    /// rdma-core, if nothing else is named so, and an old one of the vendor's.
    pub(super) fn names_a_library_without_the_functions(&self) {
        if !self.is_here() {
            return;
        }
        let [has, lacks] = self.functions;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (source, old) = (path("old.c"), path(&format!("{}.so", self.library)));
        fs::write(&source, format!("int {has}(void) {{ return 0; }}\n")).unwrap();
        let mut compiler = Command::new("cc");
        let built = compiler.args(["-shared", "-fPIC", "-o", &old, &source]).status();
        assert!(built.unwrap().success());
        let conform = self.conform("--host-only --case write_sizes");
        let refused = |library: &str, expected: &[&str]| {
            let mut command = run(&format!("--device {} -- {conform}", self.device));
            command.env(self.variable, library);
            let output = output(command);
            let stderr = text(&output.stderr);
            assert!(!output.status.success(), "{stderr}");
            for part in expected {
                assert!(stderr.contains(part), "{part}: {stderr}");
            }
        };
        refused(&old, &[&old, &format!("has no {lacks}"), "own package", self.variable]);
        let nowhere = path("nowhere.so");
        refused(&nowhere, &["there is no", &nowhere, has]);
    }

    /// Each call fails in turn: the case fails with a reason, and nothing is left on the device.
    pub(super) fn leaves_nothing_of_a_step_that_fails(&self) {
        if !self.is_here() {
            return;
        }
        let conform = self.conform("--host-only --case no_bytes");
        let mut by_vendor = 0;
        for call in 1.. {
            assert!(call < 200, "there is no end of calls");
            let fault = format!("--verbose --device {} --fail {call}:8", self.device);
            let output = output(run(&format!("{fault} -- {conform}")));
            let said = text(&output.stdout) + &text(&output.stderr);
            for word in ["panicked", "object(s) left", "is left", "are left"] {
                assert!(!said.contains(word), "{fault}: {said}");
            }
            if !said.contains("fails on purpose") {
                assert!(output.status.success(), "{said}");
                break;
            }
            let by = self.calls.iter().any(|call| said.contains(call)) && said.contains("ENOMEM");
            assert!(!by || !output.status.success(), "{fault}: {said}");
            by_vendor += u32::from(by);
        }
        // Two endpoints: two CQs and a QP each, which changes its state three times.
        assert_eq!(by_vendor, 12);
    }
}
