//! Examples on a symmetric heap, whose ranks are reached in every way.

use crate::common::{example, fails, passed, passes};
use crate::seeds::runs;

/// Each with flags for little to do, of an odd size where there is one.
const EXAMPLES: [(&str, &[&str]); 6] = [
    ("moe_layer", &["--tokens", "9", "--experts", "7", "--top-k", "3", "-n", "2"]),
    ("shmem_ring", &["-b", "3001", "-n", "3"]),
    ("shmem_barrier", &["-n", "30"]),
    ("shmem_allgather", &["-b", "3", "-n", "2"]),
    ("shmem_allreduce", &["-b", "3001", "-n", "2"]),
    ("shmem_pipeline", &["-b", "3001"]),
];

/// Every rank compares all bytes, so what arrives does not depend on the route.
#[test]
fn every_route_carries_the_same() {
    // With `WARPVERBS_RUNS=2`, two ranks too.
    let runs = runs(1);
    for (name, flags) in EXAMPLES {
        for procs in ["3", "2"].into_iter().take(runs as usize) {
            for route in ["direct", "rdma", "rdma:1"] {
                let mut command = example(name);
                command.args(["--gpu", "simt", "--nic", "soft", "--procs", procs]).args(flags);
                let last = passed(command.env("WARPVERBS_SHMEM_ROUTE", route));
                assert!(last.contains(procs), "{name} {route}: {last}");
            }
        }
    }
}

#[test]
fn sizes_and_streams_are_within_bounds() {
    for streams in ["0", "33"] {
        let flags = ["--procs", "2", "--streams", streams];
        fails("shmem_pipeline", &flags, &["--streams", "expected 1 to 32"]);
    }
    for name in ["shmem_ring", "shmem_allgather", "shmem_allreduce", "shmem_pipeline"] {
        fails(name, &["--procs", "2", "-b", "0"], &["--bytes is 0"]);
    }
    fails("shmem_barrier", &["--procs", "2", "-n", "0"], &["--rounds is 0"]);
    fails("moe_layer", &["--procs", "2", "--tokens", "0"], &["--tokens is 0"]);
    fails("moe_layer", &["--procs", "2", "--experts", "3"], &["top_k is 4", "at most 3 experts"]);
    let last = passes("shmem_pipeline", &["--procs", "2", "--streams", "1", "-b", "1"]);
    assert!(last.contains("every item of 1 streams through 2 ranks"), "{last}");
}

/// The others name it, go on without its experts, and with the process that takes its place.
#[test]
fn a_layer_goes_on_without_a_killed_rank_and_with_it_again() {
    for (route, rank) in [("direct", "1"), ("rdma:1", "0")] {
        let mut command = example("moe_layer");
        command.args(["--gpu", "simt", "--nic", "soft", "--procs", "3", "--tokens", "9"]);
        command.args(["--kill", rank]).env("WARPVERBS_SHMEM_ROUTE", route);
        let last = passed(&mut command);
        assert!(last.contains("9 tokens of each of 3 ranks"), "{route}: {last}");
    }
    fails("moe_layer", &["--procs", "2", "--kill", "2"], &["--kill is 2", "expected 0 to 1"]);
    fails("moe_layer", &["--procs", "2", "--kill", "1", "-n", "5"], &["--rounds is 5"]);
}
