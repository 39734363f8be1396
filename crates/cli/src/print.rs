//! Words on stdout and stderr. Who reads them may be gone, as `head` is after its last line.

use anyhow::Context as _;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

/// A line, or several, on stdout.
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("stdout")
}

/// Tells on stderr why the program ends, unless the reason is that nobody listens any more.
pub(crate) fn failure(error: &anyhow::Error) {
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    if cause != Some(ErrorKind::BrokenPipe) {
        // Nothing is left to tell it to if stderr is gone as well.
        let _ = writeln!(io::stderr(), "error: {error:#}");
    }
}
