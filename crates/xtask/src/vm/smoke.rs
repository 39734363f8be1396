//! Linux's RoCEv2 at both ends, driven by Debian's own programs: whatever fails here is not ours.

use super::bed::{Bed, FIRST, Nic};
use super::case::{Case, Part, Shown};
use super::options::Options;
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn part(options: &Options) -> Part {
    let nics = [Nic::Rxe; 2];
    let bytes = options.mtu.as_ref().map_or(String::new(), |mtu| format!(" -m {mtu}"));
    let pair = |command: String| {
        let both = [command.clone(), format!("{command} {FIRST}")];
        Case::pair(command, nics, both).shown(Shown::Nothing)
    };
    let ping = pair(format!("ibv_rc_pingpong -d rxe0 -g 1 -n 200 -s 256 -c{bytes}"));
    let ping = ping.check(|_, [_, text]| {
        let line = text.lines().find(|line| line.contains("usec/iter"));
        Ok(line.context("ibv_rc_pingpong shows no time")?.into())
    });
    let write = pair(format!("ib_write_bw -d rxe0 -x 1 -F -n 300 -s 65536{bytes}"));
    let write = write.check(|_, [_, text]| {
        let row = text.lines().find_map(|line| line.trim().strip_prefix("65536"));
        let row = row.context("ib_write_bw shows no row")?;
        let rate: f64 = row.split_whitespace().nth(2).unwrap_or_default().parse()?;
        ensure!(rate > 0.0, "ib_write_bw shows no rate: {row}");
        Ok(format!("64 KiB: {rate} MB/s"))
    });
    // Without rxe0 in the guests that end.
    let name = "commands that fail or hang, and a guest that panics";
    let broken = Case::act(name, [Nic::Soft; 2], broken);
    let name = "guests in which something failed are asked for their state and booted anew";
    let renewed = Case::act(name, [Nic::Soft; 2], renewed);
    Part { name: "smoke", programs: Vec::new(), cases: vec![ping, write, broken, renewed] }
}

/// The test bed reports commands and guests that fail. There is no second guest afterwards.
fn broken(bed: &mut Bed) -> Result<String> {
    let failed = bed.one.run("echo why; exit 3", LIMIT)?;
    ensure!((failed.status, &*failed.text) == (3, "why\n"), "a failing command left {failed:?}");
    let hung = bed.one.run("echo begun; sleep 1234 & sleep 1234; :", Duration::from_secs(2))?;
    ensure!(
        hung.status == 137 && hung.text.starts_with("begun\n"),
        "a hanging command left {hung:?}"
    );
    let left = bed.one.run("ps | grep '[s]leep 1234'", LIMIT)?;
    ensure!(left.status == 1, "processes of a hanging command live on: {left:?}");
    let crash = bed.two.run("echo c >/proc/sysrq-trigger", LIMIT);
    let report = crash.err().context("a guest survives its panic")?.to_string();
    for expected in ["the machine has ended", "Kernel panic"] {
        ensure!(
            report.contains(expected),
            "a guest that panics is reported without '{expected}': {report}"
        );
    }
    Ok("all are reported".into())
}

/// Follows [`broken`]: guest 2 has panicked. Guest 1 takes no commands any more.
fn renewed(bed: &mut Bed) -> Result<String> {
    bed.one.run("echo before >/tmp/mark", LIMIT)?;
    let state = bed.one.state();
    for expected in ["/bin/serve", "-- /proc/net/udp", "-- dmesg"] {
        ensure!(state.contains(expected), "the state of a guest has no '{expected}': {state}");
    }
    let stopped = bed.one.run("killall -STOP serve", Duration::from_secs(1));
    ensure!(stopped.is_err(), "a guest that takes no commands has run one: {stopped:?}");
    let state = bed.spoil();
    for expected in ["Kernel panic", "<NMI>", "the machine has ended"] {
        ensure!(
            state.contains(expected),
            "the state of silent guests has no '{expected}': {state}"
        );
    }
    bed.renew()?;
    let fresh = "[ ! -e /tmp/mark ]";
    bed.pair([fresh, fresh], None, LIMIT)?;
    Ok("both are".into())
}
