//! Output on stdout and stderr. The reader may have gone, as `head` has after its last line.

use anyhow::Context as _;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

/// A line, or several, on stdout.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("stdout")
}

/// Prints on stderr why the program fails, unless the reader of stdout has gone.
pub fn failure(error: &anyhow::Error) {
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    if cause != Some(ErrorKind::BrokenPipe) {
        // Nothing can be done if stderr is closed as well.
        let _ = writeln!(io::stderr(), "error: {error:#}");
    }
}
