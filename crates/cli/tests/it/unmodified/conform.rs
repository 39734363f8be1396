//! Our own provider of libibverbs, through libmlx5, on the device: the conformance suite.

use super::{output, ready, run};
use crate::common::text;

/// Cases that do not pass. libibverbs has no request for extended atomics, devices take
/// no LOCAL_INVAL of ordinary registrations, and forwarded receives are refused early; those
/// are differences of the provider. SEND_INVAL needs a registration that may be invalidated.
const DIFFER: [&str; 3] = ["masked_atomics", "local_invalidate", "receive_without_right"];
const FAIL: [&str; 1] = ["send_invalidate"];

#[test]
fn the_conformance_suite_passes_through_libibverbs() {
    if !ready() {
        return;
    }
    let mut command = run("--");
    command.arg(env!("CARGO_BIN_EXE_warpverbs")).args(["conform", "--nic", "mlx5_0"]);
    let output = output({
        command.arg("--host-only");
        command
    });
    let said = text(&output.stdout);
    let of = |result: &str| -> Vec<String> {
        let lines = said.lines().filter(|line| line.starts_with(result));
        lines.filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect()
    };
    let context = || format!("{said}{}", text(&output.stderr));
    assert_eq!(of("failed"), FAIL, "{}", context());
    assert_eq!(of("differs"), DIFFER, "{}", context());
    assert!(of("passed").len() > 40, "{}", context());
}
