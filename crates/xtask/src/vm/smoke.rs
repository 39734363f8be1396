//! Linux's RoCEv2 at both ends, driven by Debian's own programs: whatever fails here is not ours.

use super::Options;
use super::bed::{Bed, FIRST};
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut bed = Bed::boot(options, &[])?;
    Bed::rxe(&mut bed.one)?;
    Bed::rxe(&mut bed.two)?;
    let bytes = options.mtu.map_or(String::new(), |mtu| format!(" -m {}", mtu.bytes()));
    let ping = format!("ibv_rc_pingpong -d rxe0 -g 1 -n 200 -s 256 -c{bytes}");
    let [_, text] = bed.pair(&ping, &format!("{ping} {FIRST}"), LIMIT)?;
    let line = text.lines().find(|line| line.contains("usec/iter"));
    println!("ibv_rc_pingpong, 256 bytes: {}", line.context("ibv_rc_pingpong shows no time")?);
    let write = format!("ib_write_bw -d rxe0 -x 1 -F -n 300 -s 65536{bytes}");
    let [_, text] = bed.pair(&write, &format!("{write} {FIRST}"), LIMIT)?;
    let row = text.lines().find_map(|line| line.trim().strip_prefix("65536"));
    let row = row.context("ib_write_bw shows no row")?;
    let rate: f64 = row.split_whitespace().nth(2).unwrap_or_default().parse()?;
    ensure!(rate > 0.0, "ib_write_bw shows no rate: {row}");
    println!("ib_write_bw, 64 KiB: {rate} MB/s");
    broken(&mut bed)
}

/// The test bed reports commands and guests that fail.
fn broken(bed: &mut Bed) -> Result<()> {
    let failed = bed.one.run("echo why; exit 3", LIMIT)?;
    ensure!((failed.status, &*failed.text) == (3, "why\n"), "a failing command left {failed:?}");
    let hung = bed.one.run("echo begun; sleep 1000", Duration::from_secs(2))?;
    ensure!(
        hung.status == 137 && hung.text.starts_with("begun\n"),
        "a hanging command left {hung:?}"
    );
    let crash = bed.two.run("echo c >/proc/sysrq-trigger", LIMIT);
    let report = crash.err().context("a guest survives its panic")?.to_string();
    for expected in ["the machine has ended", "Kernel panic"] {
        ensure!(
            report.contains(expected),
            "a guest that panics is reported without '{expected}': {report}"
        );
    }
    println!("commands that fail or hang, and a guest that panics, are reported");
    Ok(())
}
