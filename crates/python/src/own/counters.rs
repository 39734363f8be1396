//! An agent's counters, as Python sees them.

use pyo3::prelude::*;
use std::collections::BTreeMap;
use warpverbs_agent::{Counters, Op, PathKind};

/// The counts of an agent since its start, and all that it has at the moment of the call. A transfer that is posted
/// twice counts twice.
#[pyclass(frozen, module = "warpverbs", name = "Counters")]
pub(crate) struct PyCounters {
    /// The agent's name.
    #[pyo3(get)]
    agent: String,
    /// Transfers that are done: a `Moved` for each path and direction that has some.
    #[pyo3(get)]
    moved: Vec<PyMoved>,
    /// Transfers that failed or were cancelled: an `Undone` for each path, direction and cause that has some.
    #[pyo3(get)]
    undone: Vec<PyUndone>,
    /// Transfers that are done, of all paths.
    #[pyo3(get)]
    transfers: u64,
    /// Bytes of transfers that are done, of all paths.
    #[pyo3(get)]
    nbytes: u64,
    /// Transfers that failed or were cancelled, of all paths.
    #[pyo3(get)]
    failed: u64,
    /// Posts that have not ended.
    #[pyo3(get)]
    in_progress: u64,
    /// How often each path was found to be the best one between two memories: those that were, by name.
    #[pyo3(get)]
    chosen: BTreeMap<String, u64>,
    /// How often no path was found that works and is allowed.
    #[pyo3(get)]
    no_path: u64,
    /// Notifications that peers have confirmed.
    #[pyo3(get)]
    notifications_sent: u64,
    /// Notifications that have arrived.
    #[pyo3(get)]
    notifications_received: u64,
    /// Notifications that were declined because too many wait to be taken.
    #[pyo3(get)]
    notifications_declined: u64,
    /// Notifications that wait to be taken.
    #[pyo3(get)]
    notifications_waiting: u64,
    /// Registrations of memory.
    #[pyo3(get)]
    registrations: u64,
    /// Bytes of all registrations.
    #[pyo3(get)]
    registered_bytes: u64,
    /// Peers that are known and not lost.
    #[pyo3(get)]
    peers: u64,
    /// How often a peer was lost.
    #[pyo3(get)]
    peers_lost: u64,
    /// Control connections to peers.
    #[pyo3(get)]
    connections_out: u64,
    /// Control connections of peers to this agent.
    #[pyo3(get)]
    connections_in: u64,
    /// Where they are from.
    found: Counters,
}

/// Transfers of one path and direction that are done.
#[pyclass(frozen, get_all, module = "warpverbs", name = "Moved")]
#[derive(Clone)]
pub(crate) struct PyMoved {
    /// The path's name; None where several memories took different ones.
    path: Option<String>,
    /// `"read"` or `"write"`.
    op: &'static str,
    /// How many.
    transfers: u64,
    /// Their bytes.
    nbytes: u64,
    /// Their times from post to done, in seconds, added up.
    seconds: f64,
}

/// Transfers of one path and direction that failed or were cancelled for one reason.
#[pyclass(frozen, get_all, module = "warpverbs", name = "Undone")]
#[derive(Clone)]
pub(crate) struct PyUndone {
    /// The path's name; None where several memories took different ones.
    path: Option<String>,
    /// `"read"` or `"write"`.
    op: &'static str,
    /// `timeout`, `peer_lost`, `deregistered`, `path`, `notification`, `cancelled` or `other`.
    cause: String,
    /// How many.
    transfers: u64,
}

fn word(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

fn named(path: Option<PathKind>) -> Option<String> {
    path.map(|path| path.to_string())
}

#[pymethods]
impl PyMoved {
    fn __repr__(&self) -> String {
        let Self { path, op, transfers, nbytes, seconds } = self;
        let path = path.as_deref().unwrap_or("several paths");
        format!("<Moved: {transfers} {op} by {path}, {nbytes} bytes, {seconds:.6} s>")
    }
}

#[pymethods]
impl PyUndone {
    fn __repr__(&self) -> String {
        let Self { path, op, cause, transfers } = self;
        let path = path.as_deref().unwrap_or("several paths");
        format!("<Undone: {transfers} {op} by {path}, {cause}>")
    }
}

impl PyCounters {
    pub(super) fn of(agent: &str, found: Counters) -> Self {
        let moved = found.moved.iter().filter(|one| one.transfers > 0).map(|one| PyMoved {
            path: named(one.path),
            op: word(one.op),
            transfers: one.transfers,
            nbytes: one.bytes,
            seconds: one.time.as_secs_f64(),
        });
        let undone = found.undone.iter().filter(|one| one.transfers > 0).map(|one| PyUndone {
            path: named(one.path),
            op: word(one.op),
            cause: one.cause.to_string(),
            transfers: one.transfers,
        });
        let chosen = found.chosen.iter().filter(|(_, count)| *count > 0);
        Self {
            agent: agent.to_owned(),
            moved: moved.collect(),
            undone: undone.collect(),
            transfers: found.moved.iter().map(|one| one.transfers).sum(),
            nbytes: found.moved.iter().map(|one| one.bytes).sum(),
            failed: found.undone.iter().map(|one| one.transfers).sum(),
            in_progress: found.in_progress,
            chosen: chosen.map(|(path, count)| (path.to_string(), *count)).collect(),
            no_path: found.no_path,
            notifications_sent: found.notifications_sent,
            notifications_received: found.notifications_received,
            notifications_declined: found.notifications_declined,
            notifications_waiting: found.notifications_waiting,
            registrations: found.registrations,
            registered_bytes: found.registered_bytes,
            peers: found.peers,
            peers_lost: found.peers_lost,
            connections_out: found.connections_out,
            connections_in: found.connections_in,
            found,
        }
    }
}

#[pymethods]
impl PyCounters {
    /// The same as text that Prometheus reads, in its format 0.0.4: what `Agent(metrics=...)` serves, for programs that
    /// have an HTTP server of their own.
    fn to_prometheus(&self) -> String {
        self.found.to_prometheus(&self.agent)
    }

    fn __repr__(&self) -> String {
        let Self { agent, transfers, nbytes, failed, in_progress, .. } = self;
        format!(
            "<Counters of {agent:?}: {transfers} transfers done, {nbytes} bytes; {failed} failed; \
             {in_progress} in progress>"
        )
    }
}
