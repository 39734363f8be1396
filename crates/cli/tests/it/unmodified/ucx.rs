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
    for device in devices() {
        for test in ["-t am_lat", "-t am_bw -D bcopy -s 2048", "-t am_bw -D zcopy -s 2048"] {
            measure(device, &format!("-d {}:1 -x ud_verbs {test}", first(device)), VERBS);
        }
    }
    for test in [
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
/// that it takes if it may choose. Where connections want an SRQ and there is none, with datagrams.
#[test]
fn ucp_exchanges() {
    if !is_here() {
        return;
    }
    for device in devices() {
        let ways = match *device {
            "mlx5" => &[(VERBS, "rc_verbs"), (IB, "rc_mlx5")][..],
            "bnxt_re" => &[(VERBS, "rc_verbs"), (DATAGRAMS, "ud_verbs")],
            _ => &[(DATAGRAMS, "ud_verbs")],
        };
        for (transports, chosen) in ways {
            for test in ["ucp_put_lat", "ucp_get", "tag_lat", "tag_bw -s 1000000", "ucp_cswap"] {
                let (line, settings) = (format!("-t {test}"), protocol_settings(device));
                let said = measure_with(device, &line, transports, settings);
                let taken = format!("({chosen}/{}:1", first(device));
                assert!(said.contains(&taken), "{test}: {said}");
            }
        }
    }
}

/// Transports that UCX may use.
const VERBS: &str = "rc_verbs,ud_verbs,self";
const DATAGRAMS: &str = "ud_verbs,self";
const IB: &str = "ib,self";

/// Settings of UCX's transports for a device.
fn settings(device: &str) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("UCX_IB_GID_INDEX", "0".to_owned()),
        ("UCX_NET_DEVICES", format!("{}:1", first(device))),
    ];
    if device != "mlx5" {
        // It takes the kind of IP header from a service level as mlx5 reports it, to check the address to which
        // a datagram went.
        settings.push(("UCX_UD_VERBS_ETH_DGID_CHECK", "n".to_owned()));
        settings.push(("UCX_WARN_UNUSED_ENV_VARS", "n".to_owned()));
    }
    settings
}

/// With those of UCX's protocols, above its transports: early versions of libbnxt_re write inline data of several
/// pieces over each other.
pub(super) fn protocol_settings(device: &str) -> Vec<(&'static str, String)> {
    let mut settings = settings(device);
    if device == "bnxt_re" {
        for inline in ["UCX_RC_VERBS_TX_MIN_INLINE", "UCX_UD_VERBS_TX_MIN_INLINE"] {
            settings.push((inline, "0".to_owned()));
        }
    }
    settings
}

fn measure(device: &str, test: &str, transports: &str) -> String {
    measure_with(device, test, transports, settings(device))
}

fn measure_with(
    device: &str,
    test: &str,
    transports: &str,
    settings: Vec<(&'static str, String)>,
) -> String {
    let line = format!("ucx_perftest -n 200 -w 10 {test}");
    let said = pair_in(&line, |line| {
        let mut command = run_on(device)(line);
        command.envs(settings.clone()).env("UCX_TLS", transports);
        command.env("UCX_LOG_LEVEL", "info");
        command
    });
    assert!(said.contains("Final:"), "{test}: {said}");
    said
}
