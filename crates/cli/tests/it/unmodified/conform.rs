//! Our own provider of libibverbs, through libmlx5, on the device: the conformance suite.

use super::{first, output, ready, run};
use crate::common::text;

/// Cases that do not pass. libibverbs has no request for extended atomics, devices take
/// no LOCAL_INVAL of ordinary registrations, and forwarded receives are refused early; those
/// are differences of the provider. SEND_INVAL needs a registration that may be invalidated.
const DIFFER: [&str; 3] = ["masked_atomics", "local_invalidate", "receive_without_right"];
const FAIL: [&str; 1] = ["send_invalidate"];

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
    let suite = Suite::run("--host-only");
    assert_eq!(suite.of("failed"), FAIL, "{}", suite.said);
    assert_eq!(suite.of("differs"), DIFFER, "{}", suite.said);
    assert!(suite.of("passed").len() > 40, "{}", suite.said);
}
