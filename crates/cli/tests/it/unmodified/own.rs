//! Examples of `warpverbs-verbs` and `warpverbs-verbs-extra` over the unmodified libmlx5: our objects
//! against a provider of rdma-core's.

use super::{library, pair, ready, succeeds};

/// The example `name`. Tests of the whole workspace build it, those of this package alone do not.
fn example(name: &str) -> Option<String> {
    let path = library().parent()?.parent()?.join("examples").join(name);
    let found = path.exists() && ready();
    if !found {
        eprintln!("SKIPPED: needs {}: build the workspace with --examples", path.display());
    }
    found.then(|| path.display().to_string())
}

#[test]
fn lists_move_their_bytes_between_two_processes() {
    let Some(ping_pong) = example("verbs_ping_pong") else { return };
    for flags in ["-s 64 -n 200", "-s 5000 -n 100 --events"] {
        let said = pair(&format!("{ping_pong} {flags}"));
        assert!(said.contains("passed"), "{said}");
    }
}

#[test]
fn batches_and_fields_of_completions_are_what_libmlx5_makes_of_them() {
    let Some(extended) = example("verbs_extended") else { return };
    let said = succeeds(&format!("-- {extended} -n 200"));
    for words in [
        "mlx5_0 does not offer TIMESTAMP | WALLCLOCK",
        "SEND | SEND_IMM | SEND_INV | WRITE | WRITE_IMM | READ | FETCH_ADD | CMP_SWAP",
        "alternate paths on InfiniBand only",
        "200 batches of 16",
        "mlx5_0 does not offer on-demand paging",
        "passed",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}
