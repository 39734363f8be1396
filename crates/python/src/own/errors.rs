//! Exceptions of `warpverbs`, which `warpverbs._errors` defines.

use pyo3::intern;
use pyo3::prelude::*;
use std::error::Error as _;
use warpverbs_agent::{AgentError, ErrorKind};

/// The exception of an error: its text, who has to act, the peer and the path where there is one.
pub(crate) fn raised(py: Python<'_>, error: &AgentError) -> PyErr {
    exception(py, error).unwrap_or_else(|other| other)
}

fn exception(py: Python<'_>, error: &AgentError) -> PyResult<PyErr> {
    let kind = match error.kind() {
        ErrorKind::BadCaller => "bad caller",
        ErrorKind::BadPeer => "bad peer",
        _ => "bad luck",
    };
    let (peer, path) = involved(error);
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(one) = cause {
        causes.push(one.to_string());
        cause = one.source();
    }
    let make = py.import(intern!(py, "warpverbs._errors"))?.getattr(intern!(py, "_make"))?;
    let made = make.call1((class(error), error.to_string(), kind, peer, path, causes))?;
    Ok(PyErr::from_value(made))
}

fn class(error: &AgentError) -> &'static str {
    match error {
        AgentError::Timeout { .. } | AgentError::InUse { .. } => "Timeout",
        AgentError::PeerLost { .. } | AgentError::Stale { .. } => "PeerLost",
        AgentError::Cancelled => "Cancelled",
        AgentError::NoPath { .. } => "NoPath",
        AgentError::UnknownPeer { .. } | AgentError::UnknownMemory { .. } => "Unknown",
        AgentError::Deregistered { .. } => "Deregistered",
        AgentError::Encoding(_) => "BadInput",
        _ if error.kind() == ErrorKind::BadCaller => "BadInput",
        _ => "Error",
    }
}

fn involved(error: &AgentError) -> (Option<&str>, Option<String>) {
    match error {
        AgentError::Stale { peer, .. }
        | AgentError::PeerLost { peer, .. }
        | AgentError::Refused { peer, .. }
        | AgentError::GivenUp { peer, .. }
        | AgentError::UnknownMemory { peer, .. } => (Some(peer), None),
        AgentError::UnknownPeer { name } => (Some(name), None),
        AgentError::Path { path, peer, .. } => (Some(peer), Some(path.to_string())),
        _ => (None, None),
    }
}

/// The result of a call on an agent, or the exception.
pub(crate) trait Raise<T> {
    /// As Python has it.
    fn raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raise<T> for Result<T, AgentError> {
    fn raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}
