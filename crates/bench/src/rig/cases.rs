//! Case after case.

use super::output::progress;
use anyhow::{Context as _, Result};

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
