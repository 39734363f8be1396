//! Transfers: posted, waited for, awaited.

use super::errors::{Raise, raised};
use super::ready::Pending;
use crate::fork::Origin;
use crate::wait;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_agent::{AgentError, Op, PostOptions, State, Transfer};

/// Blocks to be moved, any number of times. `await transfer` waits for its end.
#[pyclass(frozen, weakref, module = "warpverbs", name = "Transfer")]
pub(crate) struct PyTransfer {
    inner: Arc<Transfer>,
    op: Op,
    peer: String,
    nbytes: u64,
    origin: Origin,
}

/// The cost of a transfer's last post.
#[pyclass(frozen, get_all, module = "warpverbs", name = "Telemetry")]
pub(crate) struct PyTelemetry {
    /// Seconds inside of the call that posted.
    post: f64,
    /// Seconds from the post until it was over.
    transfer: f64,
    /// Bytes of all blocks.
    nbytes: u64,
    /// Descriptors after neighbours were merged.
    descriptors: usize,
    /// The paths taken, in order of their first block.
    paths: Vec<String>,
}

#[pymethods]
impl PyTelemetry {
    fn __repr__(&self) -> String {
        let Self { transfer, nbytes, descriptors, paths, .. } = self;
        let paths = paths.join(", ");
        format!("<Telemetry: {nbytes} bytes, {descriptors} descriptors, {transfer:.6} s, {paths}>")
    }
}

pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::NotPosted => "not posted",
        State::InProgress => "in progress",
        State::Done => "done",
        State::Failed => "failed",
        State::Cancelled => "cancelled",
    }
}

impl PyTransfer {
    pub(crate) fn new(inner: Transfer, op: Op, peer: String, nbytes: u64) -> Self {
        Self { inner: Arc::new(inner), op, peer, nbytes, origin: Origin::here() }
    }

    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        notify: Option<Vec<u8>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.origin.check()?;
        let (mut options, notifies) = (PostOptions::new(), notify.is_some());
        if let Some(bytes) = notify {
            options = options.notify(bytes);
        }
        if let Some(deadline) = wait::seconds(timeout)? {
            options = options.deadline(deadline);
        }
        let posted = if !notifies && self.inner.is_brief() {
            // Shorter than giving the interpreter away and taking it back.
            self.inner.post(options)
        } else if self.inner.holds_up(notifies) {
            let inner = self.inner.clone();
            wait::done(py, move || inner.post(options))?
        } else {
            py.detach(|| self.inner.post(options))
        };
        posted.raise(py).map(drop)
    }
}

#[pymethods]
impl PyTransfer {
    /// Begins to move the blocks; they may be in place on return. The transfer fails unless it is done after `timeout`
    /// seconds, by default those of the agent. The peer gets `notify` when all blocks are in place.
    #[pyo3(signature = (notify=None, *, timeout=None))]
    fn post(
        slf: Py<Self>,
        py: Python<'_>,
        notify: Option<Vec<u8>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<Self>> {
        slf.get().begin(py, notify, timeout)?;
        Ok(slf)
    }

    /// Waits until all blocks are in place and the peer has the notification.
    ///
    /// Raises the cause of its failure, or `Timeout` if it is still in progress after `timeout` seconds, which changes
    /// nothing. `progress` is called with the bytes that are done and all bytes, about 20 times a second and at the end.
    #[pyo3(signature = (timeout=None, *, progress=None))]
    fn wait(
        slf: Py<Self>,
        py: Python<'_>,
        timeout: Option<f64>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let own = slf.get();
        own.origin.check()?;
        let (timeout, began) = (wait::seconds(timeout)?, std::time::Instant::now());
        let limit = |from: Duration| timeout.map(|all| all.saturating_sub(from));
        loop {
            // With somebody to tell, one slice at a time.
            let step = match progress {
                Some(_) => Some(limit(began.elapsed()).unwrap_or(Duration::MAX).min(wait::SLICE)),
                None => limit(began.elapsed()),
            };
            let over = wait::until(py, step, |slice| match own.inner.wait(slice) {
                // Of the wait, unless the transfer has ended since or ran out of its own time.
                Err(AgentError::Timeout { .. }) => {
                    own.inner.state().is_terminal().then(|| own.inner.wait(Duration::ZERO))
                }
                over => Some(over),
            })?;
            let tell = || {
                let told = progress.map(|tell| tell.call1((own.inner.moved(), own.nbytes)));
                told.transpose().map(drop)
            };
            match over {
                Some(over) => {
                    over.raise(py)?;
                    return tell().map(|()| slf);
                }
                None if limit(began.elapsed()).is_some_and(|left| left.is_zero()) => {
                    let (what, after) = (own.__repr__(), timeout.unwrap_or_default());
                    return Err(raised(py, &AgentError::Timeout { what, after }));
                }
                None => {}
            }
            tell()?;
        }
    }

    /// For an event loop.
    fn _pending(&self) -> PyResult<Pending> {
        self.origin.check()?;
        Ok(Pending::new(self.inner.clone()))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let wait = slf.py().import("warpverbs._aio")?.call_method1("wait", (slf,))?;
        wait.call_method0("__await__")
    }

    /// Stops it: blocks that have not begun are not moved.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.inner.cancel());
    }

    /// `not posted`, `in progress`, `done`, `failed` or `cancelled`.
    #[getter]
    fn state(&self) -> &'static str {
        state_name(self.inner.state())
    }

    /// Whether all blocks are in place and the peer has the notification.
    #[getter]
    fn done(&self) -> bool {
        self.inner.state() == State::Done
    }

    /// Why it failed, as the exception that `wait` raises, or `None`.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.inner.error().map(|error| raised(py, &error))
    }

    /// Bytes of all blocks.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// Bytes of the last post that are known to be in place: all of them once it is done.
    #[getter]
    fn moved(&self) -> u64 {
        self.inner.moved()
    }

    /// The name of the peer.
    #[getter]
    fn peer(&self) -> &str {
        &self.peer
    }

    /// The cost of the last post. Raises if it is in progress or was not posted.
    fn telemetry(&self, py: Python<'_>) -> PyResult<PyTelemetry> {
        let cost = self.inner.telemetry().raise(py)?;
        Ok(PyTelemetry {
            post: cost.post.as_secs_f64(),
            transfer: cost.transfer.as_secs_f64(),
            nbytes: cost.bytes,
            descriptors: cost.descriptors,
            paths: cost.paths.iter().map(ToString::to_string).collect(),
        })
    }

    fn __repr__(&self) -> String {
        let (op, preposition) = match self.op {
            Op::Read => ("read", "from"),
            Op::Write => ("write", "to"),
        };
        let Self { peer, nbytes, inner, .. } = self;
        let state = match inner.state() {
            State::InProgress => format!("{} done, in progress", inner.moved()),
            state => state_name(state).to_owned(),
        };
        let paths = inner.telemetry().map(|cost| {
            let each: Vec<_> = cost.paths.iter().map(ToString::to_string).collect();
            format!(" by {}", each.join(", "))
        });
        let paths = paths.unwrap_or_default();
        format!("<Transfer: {op} of {nbytes} bytes {preposition} {peer}{paths}, {state}>")
    }
}
