//! Two hosts, as two network namespaces with a cable between them.

use super::{pair_with, ready, run};
use std::process::Command;

const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// Two namespaces; they go with the value.
struct Hosts([String; 2]);

impl Hosts {
    /// `None` where the test may not make any.
    fn new() -> Option<Self> {
        let hosts = Self([0, 1].map(|i| format!("warpverbs-{}-{i}", std::process::id())));
        let [a, b] = &hosts.0;
        let steps = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add wv0 netns {a} type veth peer name wv0 netns {b}"),
        ];
        let ends = hosts.0.iter().zip(ADDRESSES).flat_map(|(host, address)| {
            ["lo", "wv0"]
                .map(|device| format!("-n {host} link set {device} up"))
                .into_iter()
                .chain([format!("-n {host} addr add {address}/24 dev wv0")])
        });
        let ip = |line: String| {
            let output = Command::new("ip").args(line.split_whitespace()).output().ok()?;
            output.status.success().then_some(())
        };
        steps.into_iter().chain(ends).try_for_each(ip)?;
        Some(hosts)
    }

    /// `warpverbs run` with the words of `line` on host `i`.
    fn run(&self, i: usize, line: &str) -> Command {
        let inner = run(&format!("--address {} {line}", ADDRESSES[i]));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[i]]).arg(inner.get_program());
        command.args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

impl Hosts {
    /// A server and a client on the hosts of these numbers.
    fn pair(&self, line: &str, [server, client]: [usize; 2]) {
        let address = ADDRESSES[server];
        pair_with(line, |line| self.run(server, line), |line| self.run(client, line), address);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", host]).output();
        }
    }
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
        hosts.pair(line, [0, 1]);
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
            scope.spawn(move || hosts.pair(line, places));
        }
    });
}
