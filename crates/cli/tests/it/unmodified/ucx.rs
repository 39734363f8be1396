//! UCX's own benchmark, over its transports of libibverbs and its own of mlx5.

use super::{devices, first, has_srqs, pair_in, ready, run_on, skip};
use std::path::Path;

fn is_here() -> bool {
    let here = Path::new("/usr/bin/ucx_perftest").exists();
    if !here {
        skip("needs the package ucx-utils");
    }
    here && ready()
}

/// Puts, gets, active messages and atomics: each is answered with as many iterations as were asked
/// for. UCX's connections take their receives from an SRQ.
#[test]
fn ucx_transports_exchange() {
    if !is_here() {
        return;
    }
    for device in devices().iter().filter(|device| has_srqs(device)) {
        for test in [
            "-t put_lat",
            "-t put_bw -D zcopy -s 65536",
            "-t get -D bcopy",
            "-t am_lat",
            "-t am_bw -D bcopy -s 4096",
            "-t add_lat",
            "-t fadd",
        ] {
            measure(device, &format!("-d {}:1 -x rc_verbs {test}", first(device)), VERBS);
        }
    }
    for test in [
        "-x ud_verbs -t am_lat",
        "-x ud_verbs -t am_bw -D bcopy -s 2048",
        // These write WQEs and read CQEs themselves.
        "-x rc_mlx5 -t put_lat",
        "-x rc_mlx5 -t put_bw -D zcopy -s 65536",
        "-x rc_mlx5 -t get -D bcopy",
        "-x rc_mlx5 -t am_lat",
        "-x rc_mlx5 -t am_bw -D zcopy -s 4096",
        "-x rc_mlx5 -t add_lat",
        "-x rc_mlx5 -t fadd",
        "-x rc_mlx5 -t cswap",
        "-x ud_mlx5 -t am_lat",
        "-x ud_mlx5 -t am_bw -D zcopy -s 2048",
    ] {
        measure("mlx5", &format!("-d mlx5_0:1 {test}"), VERBS);
    }
}

/// UCP finds its peer by datagrams, and goes on with connections: those of libibverbs, and those
/// that it takes if it may choose.
#[test]
fn ucp_exchanges() {
    if !is_here() {
        return;
    }
    for (transports, chosen) in [(VERBS, "rc_verbs"), (IB, "rc_mlx5")] {
        for test in ["ucp_put_lat", "ucp_get", "tag_lat", "tag_bw -s 1000000", "ucp_cswap"] {
            let said = measure("mlx5", &format!("-t {test}"), transports);
            assert!(said.contains(&format!("({chosen}/mlx5_0:1")), "{test}: {said}");
        }
    }
}

/// Transports that UCX may use.
const VERBS: &str = "rc_verbs,ud_verbs,self";
const IB: &str = "ib,self";
const SETTINGS: [(&str, &str); 2] = [("UCX_IB_GID_INDEX", "0"), ("UCX_LOG_LEVEL", "info")];

fn measure(device: &str, test: &str, transports: &str) -> String {
    let line = format!("ucx_perftest -n 200 -w 10 {test}");
    let said = pair_in(&line, |line| {
        let mut command = run_on(device)(line);
        command.envs(SETTINGS).env("UCX_TLS", transports);
        command.env("UCX_NET_DEVICES", format!("{}:1", first(device)));
        command
    });
    assert!(said.contains("Final:"), "{test}: {said}");
    said
}
