//! Waits without the interpreter's lock, which Ctrl-C ends.

use crate::fork::Origin;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use warpverbs_agent::{AgentError, Sent, at_hand};

/// Between two looks at signals.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// The longest timeout: a year.
const LONGEST: f64 = 31_536_000.0;

/// Seconds of a program as a time; `None` for as long as it takes.
pub(crate) fn seconds(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = timeout else { return Ok(None) };
    match (0.0..=LONGEST).contains(&seconds) {
        true => Ok(Some(Duration::from_secs_f64(seconds))),
        false => {
            let why = format!("a timeout of {seconds} seconds, expected 0 to {LONGEST}, or None");
            Err(PyValueError::new_err(why))
        }
    }
}

/// Calls `look`, which waits for at most the time that it is given, until it has a result or `timeout` is
/// over. Signals are handled in between.
pub(crate) fn until<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut look: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    let began = Instant::now();
    loop {
        let left = timeout.map_or(SLICE, |timeout| timeout.saturating_sub(began.elapsed()));
        let slice = left.min(SLICE);
        if let Some(result) = py.detach(|| look(slice)) {
            return Ok(Some(result));
        }
        py.check_signals()?;
        if left <= slice && timeout.is_some() {
            return Ok(None);
        }
    }
}

thread_local! {
    /// Whether this is the first thread of the process, and of which process that was found out.
    static FIRST: Cell<Option<(Origin, bool)>> = const { Cell::new(None) };
}

/// Whether this is the thread in which Python handles signals.
pub(crate) fn handles_signals() -> bool {
    let here = Origin::here();
    match FIRST.get() {
        Some((origin, first)) if origin == here => first,
        _ => {
            let first = rustix::thread::gettid() == rustix::process::getpid();
            FIRST.set(Some((here, first)));
            first
        }
    }
}

/// Makes a call of an agent that may have to find a path or to connect first. If it has to, there is no result in the
/// thread that handles signals: then it is made once more, by [`done`].
pub(crate) fn quick<T>(call: impl FnOnce() -> T) -> Option<T> {
    match handles_signals() {
        true => at_hand(call),
        false => Some(call()),
    }
}

/// Does something that may wait long and cannot be done in slices. After Ctrl-C the exception comes at
/// once, while the work goes on to its own end.
pub(crate) fn done<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !handles_signals() {
        return Ok(py.detach(work));
    }
    let (send, result) = mpsc::sync_channel(1);
    let started = thread::Builder::new().name("wv-call".into()).spawn(move || {
        // Nobody waits for it any more after Ctrl-C.
        let _ = send.send(work());
    });
    started?;
    let result = std::sync::Mutex::new(result);
    let got = until(py, None, |slice| {
        let result = result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match result.recv_timeout(slice) {
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            got => Some(got.ok()),
        }
    })?;
    got.flatten()
        .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("the call's thread panicked"))
}

/// Waits until a peer has a notification that was sent.
pub(crate) fn arrived(py: Python<'_>, sent: &Sent) -> PyResult<Result<(), AgentError>> {
    let arrived = until(py, None, |slice| match sent.wait(slice) {
        Ok(false) => None,
        over => Some(over.map(drop)),
    })?;
    Ok(arrived.unwrap_or(Ok(())))
}
