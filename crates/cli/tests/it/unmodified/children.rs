//! Programs that have children, that close what they find, and that write to it.

use super::unmapped::{compiled, passes_on};
use super::{devices, pair_with, ready, run};
use crate::common::hosts::within;
use std::process::Command;

/// Runs a case with random payload, whose seed the program prints.
fn case(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("children", folder.path()) else { return };
    for device in devices() {
        passes_on(device, &program, &format!("{name} {}", std::process::id()));
    }
}

#[test]
fn children_that_close_all_and_execute_harm_nobody() {
    case("execute");
}

#[test]
fn children_that_live_on_have_devices_of_their_own() {
    case("live");
}

#[test]
fn children_that_share_memory_close_nothing_of_their_parents() {
    case("vfork");
}

#[test]
fn children_close_while_their_parent_is_in_a_call() {
    case("register");
}

#[test]
fn a_call_that_takes_long_keeps_no_other_thread_waiting() {
    case("call");
}

#[test]
fn a_channel_goes_with_its_last_descriptor() {
    case("channels");
}

#[test]
fn a_device_takes_no_bytes() {
    case("write");
}

#[test]
fn a_program_cannot_close_what_is_the_devices_own() {
    case("unknown");
}

#[test]
fn signals_and_cancellation_are_the_programs() {
    case("signals");
}

/// Two containers with the host's network: their processes have the same numbers, of which addresses are
/// made.
#[test]
fn processes_with_the_same_number_have_devices() {
    let made = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    if !ready() || !made.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: needs the right to make namespaces of processes");
    }
    let contained =
        |line: &str| within(&["unshare", "--pid", "--fork", "--kill-child"], &run(line));
    for line in ["ibv_rc_pingpong -g 0 -n 200 -c", "ib_write_bw -x 0 -n 100"] {
        pair_with(line, contained, contained, "localhost");
    }
}
