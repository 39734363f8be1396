//! When an agent begins and ends: with its Python object, with the interpreter, never in a forked child.

use crate::errors;
use crate::fork::Origin;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use warpverbs_nixl::{Agent, BackendId, Error, Plugin, Prepared, Status, Transfer};

/// Numbers of handles. No two agents have the same, so that a handle of another agent is recognised.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// All agents of this process.
static LIVE: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// Locks; a panic of another thread under the lock leaves values that are whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Things that programs name by a number.
pub(super) struct Handles<T> {
    what: &'static str,
    table: Mutex<FxHashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    fn new(what: &'static str) -> Self {
        Self { what, table: Mutex::default() }
    }

    /// Gives it a number.
    pub(super) fn add(&self, thing: T) -> u64 {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.table).insert(handle, Arc::new(thing));
        handle
    }

    /// The thing of a number.
    fn get(&self, handle: u64) -> Option<Arc<T>> {
        lock(&self.table).get(&handle).cloned()
    }

    /// The same, and the number is free.
    pub(super) fn take(&self, py: Python<'_>, handle: u64) -> PyResult<Arc<T>> {
        lock(&self.table).remove(&handle).ok_or_else(|| self.unknown(py, handle))
    }

    fn unknown(&self, py: Python<'_>, handle: u64) -> PyErr {
        errors::invalid(py, format!("{handle:#x} is no {} of this agent", self.what))
    }

    fn clear(&self) -> Vec<Arc<T>> {
        mem::take(&mut *lock(&self.table)).into_values().collect()
    }
}

/// An agent and what its program has of it.
pub(crate) struct Inner {
    name: String,
    origin: Origin,
    agent: RwLock<Option<Arc<Agent>>>,
    pub(super) lists: Handles<Prepared>,
    pub(super) transfers: Handles<Transfer>,
    pub(super) backends: Mutex<Vec<(Plugin, BackendId)>>,
}

impl Inner {
    /// Takes an agent over.
    pub(super) fn new(agent: Agent) -> Arc<Self> {
        let inner = Arc::new(Self {
            name: agent.name().to_owned(),
            origin: Origin::here(),
            agent: RwLock::new(Some(Arc::new(agent))),
            lists: Handles::new("prepared list"),
            transfers: Handles::new("transfer"),
            backends: Mutex::default(),
        });
        let mut live = lock(&LIVE);
        live.retain(|one| one.strong_count() > 0);
        live.push(Arc::downgrade(&inner));
        inner
    }

    /// The agent, unless it has ended or belongs to a parent process.
    pub(super) fn agent(&self, py: Python<'_>) -> PyResult<Arc<Agent>> {
        let found = self.agent.read().unwrap_or_else(PoisonError::into_inner).clone();
        found.filter(|_| self.origin.is_here()).ok_or_else(|| self.gone(py))
    }

    /// An error if there is none, for calls on what was made of it.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_over() {
            true => Err(self.gone(py)),
            false => Ok(()),
        }
    }

    /// A transfer of this agent.
    pub(super) fn transfer(&self, py: Python<'_>, handle: u64) -> PyResult<Arc<Transfer>> {
        self.known(py, &self.transfers, handle)
    }

    /// A prepared list of this agent.
    pub(super) fn list(&self, py: Python<'_>, handle: u64) -> PyResult<Arc<Prepared>> {
        self.known(py, &self.lists, handle)
    }

    /// With the agent its tables end.
    fn known<T>(&self, py: Python<'_>, all: &Handles<T>, handle: u64) -> PyResult<Arc<T>> {
        if let Some(found) = all.get(handle).filter(|_| self.origin.is_here()) {
            return Ok(found);
        }
        self.check(py)?;
        Err(all.unknown(py, handle))
    }

    fn gone(&self, py: Python<'_>) -> PyErr {
        let name = &self.name;
        let why = match self.origin.is_here() {
            true => format!("the agent {name} has ended"),
            false => format!(
                "the agent {name} is of the process that forked this one; make another here, or spawn"
            ),
        };
        errors::raised(py, &Error::new(Status::NotAllowed, why))
    }

    /// Whether it has ended, or is of a parent process: then its handles are nothing any more.
    pub(super) fn is_over(&self) -> bool {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        agent.is_none() || !self.origin.is_here()
    }

    /// Whether it has ended in this process, as at the end of the interpreter: it has no memory and knows no peers.
    pub(super) fn has_ended(&self) -> bool {
        self.origin.is_here() && self.is_over()
    }

    /// Ends it. It may wait for peers, and must not be called with the interpreter held.
    fn close(&self) {
        let agent = self.agent.write().unwrap_or_else(PoisonError::into_inner).take();
        let (transfers, lists) = (self.transfers.clear(), self.lists.clear());
        if !self.origin.is_here() {
            // Its threads are the parent's: there is nothing to end here, and nobody to wait for.
            mem::forget((transfers, lists, agent));
            return;
        }
        // Transfers first: they use the memory.
        drop((transfers, lists));
        if let Some(agent) = agent {
            // A program that drops its agent may free its memory next. Of a peer that does not answer in
            // time there is nobody left to tell.
            let _ = agent.deregister_all();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let close = || self.close();
        // While the interpreter ends there is nobody to give way to.
        if Python::try_attach(|py| py.detach(close)).is_none() {
            self.close();
        }
    }
}

/// Ends all agents: memory that they move goes away with the interpreter.
#[pyfunction]
fn end_all(py: Python<'_>) {
    let live = mem::take(&mut *lock(&LIVE));
    py.detach(|| live.iter().filter_map(Weak::upgrade).for_each(|one| one.close()));
}

/// Has all agents end before the interpreter does.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    let module = PyModule::new(py, "_life")?;
    module.add_function(wrap_pyfunction!(end_all, &module)?)?;
    py.import("atexit")?.call_method1("register", (module.getattr("end_all")?,))?;
    Ok(())
}
