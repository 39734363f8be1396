//! Examples on a symmetric heap, whose ranks are reached in every way.

use crate::common::{example, fails, passes, text};
use crate::seeds::runs;

const NAMES: [&str; 5] =
    ["shmem_ring", "shmem_barrier", "shmem_allgather", "shmem_allreduce", "shmem_pipeline"];

fn pass(name: &str, procs: &str, route: &str) -> Vec<String> {
    let mut command = example(name);
    command.args(["--gpu", "simt", "--nic", "soft", "--procs", procs, "--sha256"]);
    // Sizes of barriers are rounds.
    let most = if name == "shmem_barrier" { "30" } else { "3000" };
    let factor = if name == "shmem_barrier" { "10" } else { "1000" };
    command.args(["-b", "3", "-e", most, "-f", factor, "-n", "2"]);
    command.env("WARPVERBS_SHMEM_ROUTE", route);
    let out = command.output().expect("the example runs");
    let (told, why) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success() && told.contains("2 sizes"), "{name} {route}: {told}{why}");
    if name == "shmem_pipeline" {
        assert!(told.contains("at once") && told.contains("as one after the other"), "{told}");
    }
    told.lines().filter_map(|line| Some(line.split_once("sha256 ")?.1.to_owned())).collect()
}

#[test]
fn every_route_gives_the_same() {
    // With `WARPVERBS_RUNS=2`, two ranks too.
    let runs = runs(1);
    for name in NAMES {
        for procs in ["3", "2"].into_iter().take(runs as usize) {
            let all = ["direct", "rdma", "rdma:1"].map(|route| pass(name, procs, route));
            assert_eq!(all[0].len(), 2, "{name}: {all:?}");
            assert!(all[0] == all[1] && all[0] == all[2], "{name} of {procs}: {all:?}");
        }
    }
}

#[test]
fn streams_are_within_bounds() {
    for (streams, cause) in [("0", "expected 1 to 32"), ("33", "expected 1 to 32")] {
        fails("shmem_pipeline", &["--procs", "2", "--streams", streams], &["--streams", cause]);
    }
    let last = passes("shmem_pipeline", &["--procs", "2", "--streams", "1", "-e", "64", "-n", "1"]);
    assert!(last.contains("every item of 1 streams through 2 ranks"), "{last}");
}
