//! Our own provider of libibverbs, through libmlx5, on the device: the conformance suite.

use super::direct::release;
use super::{devices, first, output, ready, run};
use crate::common::text;

/// Cases with known differences of devices that libibverbs drives. It has no request for extended atomics, devices take
/// no LOCAL_INVAL and no SEND_INVAL of ordinary registrations, and forwarded receives are refused early.
const DIFFER: [&str; 6] = [
    "send_invalidate",
    "masked_atomics",
    "local_invalidate",
    "receive_without_right",
    "kernel_masked_atomics",
    "kernel_receives_invalidate",
];
/// Words of cases without SRQs and RESET.
const SOME: &str = "--case send --case receive_ --case receives_are --case receives_invalidate --case write --case read \
                    --case add --case swap --case masked --case local --case key --case bounds --case peer \
                    --case fenced";
/// Cases with SRQs.
const SHARED: [&str; 3] = ["shared_receives", "shared_receives_return", "kernel_shared_receives"];

/// All that a run of the suite on the device has said.
pub(super) struct Suite {
    pub(super) said: String,
}

impl Suite {
    pub(super) fn run(flags: &str) -> Self {
        Self::run_on("mlx5", flags)
    }

    /// On a device of this kind.
    pub(super) fn run_on(device: &str, flags: &str) -> Self {
        let (program, nic) = (env!("CARGO_BIN_EXE_warpverbs"), first(device));
        let line = format!("--device {device} -- {program} conform --nic {nic} {flags}");
        let output = output(run(&line));
        Self { said: text(&output.stdout) + &text(&output.stderr) }
    }

    /// Cases with this result.
    pub(super) fn of(&self, result: &str) -> Vec<&str> {
        let lines = self.said.lines().filter(|line| line.starts_with(result));
        lines.filter_map(|line| line.split_whitespace().nth(2)).collect()
    }
}

#[test]
fn the_conformance_suite_passes_through_libibverbs() {
    if !ready() {
        return;
    }
    for device in devices() {
        // libbnxt_re of v44 and v61 crashes when a QP with an SRQ has failed; that of v44 does not begin anew
        // after RESET.
        let more = match (*device, release()) {
            ("bnxt_re", 44) => "",
            ("bnxt_re", 61) => "--case reset",
            _ => "--case shared --case reset --case reconnect",
        };
        let suite = Suite::run_on(device, &format!("--gpu simt {SOME} {more}"));
        let said = &suite.said;
        assert!(suite.of("failed").is_empty() && suite.of("stale").is_empty(), "{device}: {said}");
        assert_eq!(suite.of("differs"), DIFFER, "{device}: {said}");
        let skipped: &[&str] = match *device {
            "mlx5" => &[],
            // It takes six pieces of memory in a work request.
            "bnxt_re" => &["write_gather"],
            _ => &SHARED,
        };
        assert_eq!(suite.of("skipped"), skipped, "{device}: {said}");
        assert!(suite.of("passed").len() > 35, "{device}: {said}");
    }
}
