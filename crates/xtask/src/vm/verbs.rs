//! Our safe layer over libibverbs on Linux's RoCEv2, at both ends: work, and trouble.

use super::bed::{FIRST, Nic};
use super::build;
use super::case::{Case, Part};
use super::image::find;
use anyhow::{Result, ensure};

const RXE: [Nic; 2] = [Nic::Rxe; 2];

/// The refusals of what rxe has not: timestamps, alternate paths, on-demand paging, and entries that
/// its driver miscounts; then extended CQs and QPs.
const EXTENDED: [&str; 6] = [
    "rxe0 does not offer TIMESTAMP | WALLCLOCK",
    "alternate paths on InfiniBand only",
    "entries of different lengths",
    "does not offer on-demand paging",
    "1000 batches of 16",
    "passed",
];
/// Objects of which a control group can run out, and the call that fails then. The device itself has a
/// million.
const EXHAUSTED: [[&str; 2]; 4] = [
    ["pds", "ibv_alloc_pd"],
    ["cqs", "ibv_create_cq"],
    ["qps", "ibv_create_qp"],
    ["mrs", "ibv_reg_mr"],
];
const GROUP: &str = "mkdir -p /sys/fs/cgroup/few 2>/dev/null || { \
                     mount -t cgroup2 none /sys/fs/cgroup && \
                     echo +rdma >/sys/fs/cgroup/cgroup.subtree_control && \
                     mkdir /sys/fs/cgroup/few; }; \
                     echo rxe0 hca_object=20 >/sys/fs/cgroup/few/rdma.max";

pub(super) fn part() -> Result<Part> {
    let mut programs = build::examples("warpverbs-verbs", &["verbs_ping_pong", "verbs_trouble"])?;
    programs.extend(build::examples("warpverbs-verbs-extra", &["verbs_extended"])?);
    programs.push(find("setpriv", "util-linux")?);
    let mut cases = Vec::new();
    for flags in ["-s 64 -n 200", "-s 5000 -n 100 --events"] {
        let line = format!("verbs_ping_pong {flags}");
        let both = [line.clone(), format!("{line} {FIRST}")];
        cases.push(Case::pair(line, RXE, both).words(&["passed\n"]));
    }
    cases.push(reported("verbs_extended -n 1000", &EXTENDED));
    let killed = [
        "timeout -s KILL 3 verbs_ping_pong -s 64 -n 1000000; true".into(),
        format!("verbs_ping_pong -s 64 -n 1000000 {FIRST} 2>&1; true"),
    ];
    cases.push(Case::pair("a peer is killed", RXE, killed).words(&["transport retries exceeded"]));
    for [what, call] in EXHAUSTED {
        let command = format!(
            "{GROUP}; sh -c 'echo $$ >/sys/fs/cgroup/few/cgroup.procs; verbs_trouble exhaust {what}'"
        );
        cases.push(reported(&command, &[call, "EAGAIN", "rdma.max", "made one again"]));
    }
    cases.push(reported("verbs_trouble load 96", &["96 rounds"]));
    cases.extend(locked());
    cases.extend(
        [(6, "", "program 0", "freed"), (100, "kill -KILL $P; ", "program 137", "writing")]
            .map(removed),
    );
    cases.extend(gone());
    Ok(Part { name: "verbs", programs, cases })
}

/// A command that may fail, but not by a signal or an abort, and whose output has all `words`.
fn reported(command: &str, words: &[&str]) -> Case {
    let run = format!("{{ {command}; }} 2>&1; [ $? -lt 2 ]");
    Case::one(command, RXE, run).words(words)
}

/// Without the right to lock memory, and with little of it allowed.
fn locked() -> [Case; 2] {
    let few = "ulimit -l 64; ";
    let other = "/bin/setpriv --reuid 1000 --clear-groups ";
    let register = "verbs_trouble register 1048576";
    let refused = ["ENOMEM", "may lock 65536 bytes", "no CAP_IPC_LOCK", "ulimit -l unlimited"];
    let open = "chmod 666 /dev/infiniband/uverbs0; ";
    [
        reported(&format!("{open}sh -c '{few}{other}{register}'"), &refused),
        reported(&format!("sh -c '{few}{register}'"), &["registered 1048576 bytes"]),
    ]
}

/// rxe0 is deleted under a program that uses it. rxe has no `disassociate_ucontext`, so the kernel
/// (`ib_uverbs_remove_one`) takes the node away at once and then waits for the program, which works on
/// without an event; when it closes the device, or is killed, the deletion ends.
fn removed((seconds, end, program, last): (u32, &str, &str, &'static str)) -> Case {
    let command = format!(
        "rm -f /tmp/out; verbs_trouble outlive {seconds} >/tmp/out 2>&1 & P=$!; \
         while ! grep -qs writing /tmp/out; do sleep 0.1; done; \
         rdma link delete rxe0 & D=$!; \
         while [ -e /dev/infiniband/uverbs0 ]; do sleep 0.1; done; \
         kill -0 $P && kill -0 $D && echo both run; \
         verbs_trouble register 1 2>&1; \
         {end}wait $P; echo program $?; wait $D; echo deletion $?; \
         ls /sys/class/infiniband; cat /tmp/out; rxe-up"
    );
    let words = ["both run", "is removing rxe0", program, "deletion 0"];
    let case = Case::one(format!("rxe0 deleted in use, {program}"), RXE, command).words(&words);
    case.check(move |_, [text, _]| {
        let quiet = !text.contains("DeviceFatal") && text.trim_end().ends_with(last);
        ensure!(quiet, "rxe0 deleted in use: {text}");
        Ok(String::new())
    })
}

/// The link goes away under a program that uses it; then there is no device, then no node of one.
fn gone() -> [Case; 3] {
    let lose = "sh -c '(sleep 2; ip link set eth0 down) & verbs_trouble lose'; end=$?; \
                ip link set eth0 up; (exit $end)";
    let none = "rdma link delete rxe0; verbs_trouble register 1; rxe-up";
    let hidden = "mv /dev/infiniband /dev/hidden; verbs_trouble register 1; \
                  mv /dev/hidden /dev/infiniband";
    [
        reported(lose, &["event: Port { port: 1, active: false }", "then: Down"]),
        reported(none, &["none in /sys/class/infiniband"]),
        reported(hidden, &["--device=/dev/infiniband"]),
    ]
}
