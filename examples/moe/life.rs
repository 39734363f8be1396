//! The two lives of a rank that is killed, for the example `moe_layer`.

use anyhow::{Result, ensure};
use rustix::process::{Signal, getpid, kill_process};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

/// Layers before the killed rank's last, and that the others run without it.
pub(crate) const BEFORE: u32 = 2;
/// Set in the processes that a rank's first one starts when it is to be killed: number of its life.
const LIFE: &str = "MOE_LAYER_LIFE";

/// 0 for a process that is to be killed, 1 for the one that takes its place; none for others.
pub(crate) fn number() -> Option<u32> {
    std::env::var(LIFE).ok()?.parse().ok()
}

/// Runs this rank as a process that is killed, and then as one that takes its place.
pub(crate) fn live_twice() -> Result<()> {
    for life in [0, 1] {
        let mut process = Command::new(std::env::current_exe()?);
        process.args(std::env::args_os().skip(1)).env(LIFE, life.to_string());
        let status = process.status()?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        ensure!(if life == 0 { killed } else { status.success() }, "life {life}: {status}");
    }
    Ok(())
}

/// Ends a process that is to be killed in the middle of this layer.
pub(crate) fn die_in(round: u32) -> Result<()> {
    if round == BEFORE && number() == Some(0) {
        kill_process(getpid(), Signal::KILL)?;
    }
    Ok(())
}
