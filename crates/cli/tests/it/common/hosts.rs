//! Two hosts, as two network namespaces with a cable between them.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// Two namespaces; they go with the value.
pub(crate) struct Hosts([String; 2]);

impl Hosts {
    /// `None` where the test may not make any.
    pub(crate) fn new() -> Option<Self> {
        // Tests of one process have hosts of their own.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let hosts = Self([0, 1].map(|i| format!("warpverbs-{}-{n}-{i}", std::process::id())));
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

    /// A command, to be run on host `i`.
    pub(crate) fn on(&self, i: usize, inner: &Command) -> Command {
        within(&["ip", "netns", "exec", &self.0[i]], inner)
    }
}

/// A command that is started by `outer`, a program and its arguments, in the environment that it has.
pub(crate) fn within(outer: &[&str], inner: &Command) -> Command {
    let mut command = Command::new(outer[0]);
    command.args(&outer[1..]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", host]).output();
        }
    }
}
