//! Our safe layer over libibverbs on Linux's RoCEv2, at both ends: work, and trouble.

use super::bed::{Bed, FIRST};
use super::guest::Guest;
use super::image::find;
use super::{Options, build};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn run(options: &Options) -> Result<()> {
    let names = ["verbs_ping_pong", "verbs_extended", "verbs_trouble"];
    let mut programs = build::examples("warpverbs-verbs", &names)?;
    programs.push(find("setpriv", "util-linux")?);
    let mut bed = Bed::boot(options, &programs)?;
    Bed::rxe(&mut bed.one)?;
    Bed::rxe(&mut bed.two)?;
    for flags in ["-s 64 -n 200", "-s 5000 -n 100 --events"] {
        let line = format!("verbs_ping_pong {flags}");
        let [_, text] = bed.pair(&line, &format!("{line} {FIRST}"), LIMIT)?;
        ensure!(text.lines().any(|line| line == "passed"), "{text}");
        print!("{text}");
    }
    extended(&mut bed.one)?;
    killed(&mut bed)?;
    exhausted(&mut bed.one)?;
    locked(&mut bed.one)?;
    removed(&mut bed.one)?;
    lost(&mut bed.one)?;
    nothing_there(&mut bed.one)
}

/// What the kernel counts for `rxe0`: protection domains, CQs, QPs and the like.
fn resources(guest: &mut Guest) -> Result<String> {
    let text = guest.check("rdma resource show", LIMIT)?;
    Ok(text.lines().filter(|line| line.contains("rxe0")).collect())
}

/// `command` leaves nothing behind; its output has all `words`.
fn reported(guest: &mut Guest, command: &str, words: &[&str]) -> Result<()> {
    let before = resources(guest)?;
    ensure!(before.contains("qp"), "no counts of rxe0: {before:?}");
    let done = guest.run(&format!("{command} 2>&1"), LIMIT)?;
    let text = done.text.trim();
    for word in words {
        ensure!(text.contains(word), "`{command}` does not say '{word}': {text}");
    }
    // Aborts and signals are above.
    ensure!(done.status < 2, "`{command}` ended with {}: {text}", done.status);
    let after = resources(guest)?;
    ensure!(before == after, "`{command}` left {after}, before were {before}");
    println!("{command}: {}", text.replace('\n', "; "));
    Ok(())
}

/// Extended CQs and QPs, and the refusals of what rxe has not: timestamps, alternate paths, on-demand
/// paging, and entries that its driver miscounts.
fn extended(guest: &mut Guest) -> Result<()> {
    let refusals = [
        "rxe0 does not offer TIMESTAMP | WALLCLOCK",
        "alternate paths on InfiniBand only",
        "entries of different lengths",
        "does not offer on-demand paging",
    ];
    let words = [&refusals[..], &["1000 batches of 16", "passed"]].concat();
    reported(guest, "verbs_extended -n 1000", &words)
}

/// A peer is killed; the other reports that.
fn killed(bed: &mut Bed) -> Result<()> {
    let before = resources(&mut bed.two)?;
    let server = "timeout -s KILL 3 verbs_ping_pong -s 64 -n 1000000; true";
    let client = format!("verbs_ping_pong -s 64 -n 1000000 {FIRST} 2>&1; true");
    let [_, text] = bed.pair(server, &client, LIMIT)?;
    ensure!(text.contains("transport retries exceeded"), "{text}");
    ensure!(before == resources(&mut bed.two)?, "a peer that was killed leaves something behind");
    println!("a killed peer: {}", text.lines().last().unwrap_or_default());
    Ok(())
}

/// The device itself has a million of each; a control group has as many as it is given.
fn exhausted(guest: &mut Guest) -> Result<()> {
    let group = "mount -t cgroup2 none /sys/fs/cgroup && cd /sys/fs/cgroup && \
                 echo +rdma >cgroup.subtree_control && mkdir few && \
                 echo rxe0 hca_object=20 >few/rdma.max";
    guest.check(group, LIMIT)?;
    let kinds = ["pds ibv_alloc_pd", "cqs ibv_create_cq", "qps ibv_create_qp", "mrs ibv_reg_mr"];
    for (what, call) in kinds.iter().filter_map(|line| line.split_once(' ')) {
        let command = format!(
            "sh -c 'echo $$ >/sys/fs/cgroup/few/cgroup.procs; verbs_trouble exhaust {what}'"
        );
        reported(guest, &command, &[call, "EAGAIN", "rdma.max", "made one again"])?;
    }
    reported(guest, "verbs_trouble load 96", &["96 rounds"])
}

/// Without the right to lock memory, and with little of it allowed.
fn locked(guest: &mut Guest) -> Result<()> {
    guest.check("chmod 666 /dev/infiniband/uverbs0", LIMIT)?;
    let command = "sh -c 'ulimit -l 64; /bin/setpriv --reuid 1000 --clear-groups verbs_trouble register 1048576'";
    reported(
        guest,
        command,
        &["ENOMEM", "may lock 65536 bytes", "no CAP_IPC_LOCK", "ulimit -l unlimited"],
    )?;
    reported(
        guest,
        "sh -c 'ulimit -l 64; verbs_trouble register 1048576'",
        &["registered 1048576 bytes"],
    )
}

/// rxe0 is deleted under a program that uses it. rxe has no `disassociate_ucontext`, so the kernel
/// (`ib_uverbs_remove_one`) takes the node away at once and then waits for the program, which works on
/// without an event; when it closes the device, or is killed, the deletion ends.
fn removed(guest: &mut Guest) -> Result<()> {
    for (seconds, end, program, last) in
        [(6, "", "program 0", "freed"), (100, "kill -KILL $P; ", "program 137", "writing")]
    {
        let command = format!(
            "rm -f /tmp/out; verbs_trouble outlive {seconds} >/tmp/out 2>&1 & P=$!; \
             while ! grep -qs writing /tmp/out; do sleep 0.1; done; \
             rdma link delete rxe0 & D=$!; \
             while [ -e /dev/infiniband/uverbs0 ]; do sleep 0.1; done; \
             kill -0 $P && kill -0 $D && echo both run; \
             verbs_trouble register 1 2>&1; \
             {end}wait $P; echo program $?; wait $D; echo deletion $?; \
             ls /sys/class/infiniband; cat /tmp/out"
        );
        let text = guest.check(&command, LIMIT)?;
        for words in ["both run", "is removing rxe0", program, "deletion 0"] {
            ensure!(text.contains(words), "rxe0 deleted in use: no '{words}' in {text}");
        }
        let quiet = !text.contains("DeviceFatal") && text.trim_end().ends_with(last);
        ensure!(quiet, "rxe0 deleted in use: {text}");
        println!("rxe0 deleted in use: {}", text.trim().replace('\n', "; "));
        Bed::rxe(guest)?;
        let left = resources(guest)?;
        ensure!(left.contains("mr 0 ctx 0 srq 0"), "rxe0 made anew has {left}");
    }
    Ok(())
}

/// The link goes away under a program that uses it.
fn lost(guest: &mut Guest) -> Result<()> {
    let command = "sh -c '(sleep 2; ip link set eth0 down) & verbs_trouble lose'";
    reported(guest, command, &["event: Port { port: 1, active: false }", "then: Down"])?;
    guest.check("ip link set eth0 up", LIMIT)?;
    guest.check("rdma link delete rxe0", LIMIT).map(drop)
}

fn nothing_there(guest: &mut Guest) -> Result<()> {
    let none = guest.run("verbs_trouble register 1 2>&1", LIMIT)?.text;
    ensure!(none.contains("none in /sys/class/infiniband"), "{none}");
    Bed::rxe(guest)?;
    let hidden = "mv /dev/infiniband /dev/hidden; verbs_trouble register 1 2>&1; mv /dev/hidden /dev/infiniband";
    let text = guest.run(hidden, LIMIT)?.text;
    ensure!(text.contains("--device=/dev/infiniband"), "{text}");
    println!("no device: {}\nno node: {}", none.trim(), text.trim());
    Ok(())
}
