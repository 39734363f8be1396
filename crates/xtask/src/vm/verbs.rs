//! Our safe layer over libibverbs on Linux's RoCEv2, at both ends.

use super::bed::{Bed, FIRST};
use super::{Options, build};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const PROGRAM: &str = "verbs_ping_pong";

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut bed = Bed::boot(options, &build::examples("warpverbs-verbs", &[PROGRAM])?)?;
    Bed::rxe(&mut bed.one)?;
    Bed::rxe(&mut bed.two)?;
    for flags in ["-s 64 -n 200", "-s 5000 -n 100 --events"] {
        let line = format!("{PROGRAM} {flags}");
        let [_, text] = bed.pair(&line, &format!("{line} {FIRST}"), LIMIT)?;
        ensure!(text.lines().any(|line| line == "passed"), "{text}");
        print!("{text}");
    }
    Ok(())
}
