//! Case after case.

use crate::busy::Watch;
use crate::output::{Finding, Measured, Row, Setting};
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::Duration;

/// Measures each case and adds its row, until one fails; the error and a progress bar have its name.
/// `measure` also gets the rows before.
pub(crate) fn each<C, R>(
    cases: &[C],
    rows: &mut Vec<R>,
    name: impl Fn(&C) -> String,
    mut measure: impl FnMut(&C, &[R]) -> Result<R>,
) -> Result<()> {
    let bar = progress(cases.len());
    for case in cases {
        bar.set_message(name(case));
        let row = measure(case, rows).with_context(|| name(case))?;
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Measures, and prints the rows that there are with what `findings` finds in them.
pub(crate) fn report<R: Row>(
    command: &str,
    setting: Setting,
    json: bool,
    measure: impl FnOnce(&mut Vec<R>) -> Result<()>,
    findings: impl FnOnce(&[R]) -> Vec<Finding>,
) -> Result<()> {
    let (watch, mut rows) = (Watch::start(), Vec::new());
    let end = measure(&mut rows);
    let findings = findings(&rows);
    let measured = Measured::new(command, setting, rows).with(findings);
    measured.watched(&watch).print_up_to(end, json)
}

/// A progress bar, drawn only on a terminal.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
