//! Programs of two hosts.

use super::{pair_with, ready, run};
use crate::common::hosts::{ADDRESSES, Hosts};

/// A server and a client on the hosts of these numbers.
fn pair(hosts: &Hosts, line: &str, [server, client]: [usize; 2]) {
    let on =
        |i: usize, line: &str| hosts.on(i, &run(&format!("--address {} {line}", ADDRESSES[i])));
    pair_with(line, |line| on(server, line), |line| on(client, line), ADDRESSES[server]);
}

#[test]
fn two_hosts_exchange() {
    if !ready() {
        return;
    }
    let Some(hosts) = Hosts::new() else {
        return eprintln!("SKIPPED: needs iproute2 and the right to make network namespaces");
    };
    for line in [
        "ib_write_bw -x 0 -n 100",
        "ib_read_lat -x 0 -n 50 -s 8192",
        "ib_send_bw -x 0 -n 50 -q 4 --use-srq",
        "ibv_rc_pingpong -g 0 -n 100 -c -e",
    ] {
        pair(&hosts, line, [0, 1]);
    }
    // Processes of a host have NICs at the same address and port, and reach each other as well.
    std::thread::scope(|scope| {
        for (line, places) in [
            ("ib_write_bw -x 0 -n 1000 -s 30000", [0, 1]),
            ("ib_send_bw -x 0 -n 1000 -s 30000 -q 3", [1, 0]),
            ("ib_read_bw -x 0 -n 200", [0, 1]),
            ("ib_write_bw -x 0 -n 1000", [0, 0]),
            ("ibv_ud_pingpong -g 0 -n 100", [0, 0]),
        ] {
            let hosts = &hosts;
            scope.spawn(move || pair(hosts, line, places));
        }
    });
}
