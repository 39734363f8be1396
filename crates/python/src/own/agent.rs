//! Agents.

use super::blocks::{Blocks, PyPrepared, prepare};
use super::counters::PyCounters;
use super::errors::{Raise, raised};
use super::explanation::PyExplanation;
use super::memory::{Memory, PyRemoteMemory};
use super::object::memory_of;
use super::settings;
use super::transfer::PyTransfer;
use crate::fork::Origin;
use crate::wait;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use warpverbs_agent::{Agent, AgentConfig, AgentError, Op};
use warpverbs_gpu::{Buffer, GpuChoice};
use warpverbs_mem::Region;

/// A named end of transfers: registers memory, knows peers, moves blocks. Any thread may use it.
#[pyclass(frozen, weakref, module = "warpverbs", name = "Agent")]
pub(crate) struct PyAgent {
    inner: RwLock<Option<Agent>>,
    name: String,
    origin: Origin,
}

/// Notifications by sender.
type Notified<'py> = (String, Bound<'py, PyBytes>);

impl PyAgent {
    fn agent(&self) -> PyResult<Agent> {
        self.origin.check()?;
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || PyRuntimeError::new_err(format!("agent {:?} is closed", self.name));
        inner.clone().ok_or_else(closed)
    }

    fn take(&self) -> Option<Agent> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn deadline(&self, timeout: Option<f64>) -> PyResult<(Agent, Duration)> {
        let agent = self.agent()?;
        let timeout = wait::seconds(timeout)?.unwrap_or_else(|| agent.deadline());
        Ok((agent, timeout))
    }

    fn made(
        &self,
        py: Python<'_>,
        op: Op,
        local: &Bound<'_, Blocks>,
        remote: &Bound<'_, Blocks>,
    ) -> PyResult<PyTransfer> {
        let agent = self.agent()?;
        let (here, there) = (&local.get().0, &remote.get().0);
        let made = match py.detach(|| wait::quick(|| agent.transfer(op, here, there))) {
            Some(made) => made,
            None => {
                let (here, there) = (local.clone().unbind(), remote.clone().unbind());
                wait::done(py, move || agent.transfer(op, &here.get().0, &there.get().0))?
            }
        };
        let made = made.raise(py)?;
        let nbytes = made.bytes();
        Ok(PyTransfer::new(made, op, there.owner().name.to_string(), nbytes))
    }

    /// The same, posted.
    fn posted(
        &self,
        py: Python<'_>,
        op: Op,
        (local, remote): (&Bound<'_, Blocks>, &Bound<'_, Blocks>),
        (notify, timeout): (Option<Vec<u8>>, Option<f64>),
    ) -> PyResult<PyTransfer> {
        let made = self.made(py, op, local, remote)?;
        made.begin(py, notify, timeout)?;
        Ok(made)
    }
}

/// `read` or `write`.
fn operation(op: &str) -> PyResult<Op> {
    match op.to_ascii_lowercase().as_str() {
        "read" => Ok(Op::Read),
        "write" => Ok(Op::Write),
        _ => Err(PyValueError::new_err(format!("{op:?}, expected \"read\" or \"write\""))),
    }
}

#[pymethods]
impl PyAgent {
    /// An agent of this name. It listens at `listen`, by default a free port of the loopback interface; peers of other
    /// hosts need another address. `token` is a secret that all agents of a job share. `gpu` is the device whose
    /// engines copy (`simt`, `cuda`, `cuda:N`), by default the one that PyTorch uses at this moment. `require` is the
    /// only path that may be taken, `without` are paths that may not be. `deadline` is how long a transfer, and
    /// everything else that waits for a peer, may take unless it is given its own time, in seconds. `metrics` is where
    /// its counters go for Prometheus: `ADDRESS:PORT` serves them by HTTP, a path is a file that is written every 15 s.
    #[new]
    #[pyo3(signature = (name, *, listen=None, advertise=Vec::new(), token=None, gpu=None, require=None,
        without=Vec::new(), deadline=30.0, silence=30.0, notification_window=64, metrics=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        name: &str,
        listen: Option<&str>,
        advertise: Vec<String>,
        token: Option<Vec<u8>>,
        gpu: Option<&str>,
        require: Option<&str>,
        without: Vec<String>,
        deadline: f64,
        silence: f64,
        notification_window: u32,
        metrics: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let time = |seconds| Ok::<_, PyErr>(wait::seconds(Some(seconds))?.unwrap_or_default());
        let mut config = AgentConfig::default()
            .deadline(time(deadline)?)
            .silence(time(silence)?)
            .notification_window(notification_window);
        if let Some(listen) = listen {
            config = config.listen(settings::address(listen)?);
        }
        let advertise = advertise.iter().map(|one| settings::address(one));
        config = config.advertise(advertise.collect::<PyResult<Vec<_>>>()?);
        if let Some(token) = token {
            config = config.token(token);
        }
        config = settings::paths(config, require, &without)?;
        if let Some(gpu) = settings::gpu(py, gpu)? {
            config = config.gpu(&gpu);
        }
        if let Some(to) = metrics {
            config = config.metrics(settings::metrics(to)?);
        }
        super::log::start(py)?;
        let inner = py.detach(|| Agent::new(name, config)).raise(py)?;
        let made =
            Self { inner: RwLock::new(Some(inner)), name: name.to_owned(), origin: Origin::here() };
        Ok(made)
    }

    /// Its name among peers.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens: `HOST:PORT`.
    #[getter]
    fn address(&self) -> PyResult<String> {
        Ok(self.agent()?.address().to_string())
    }

    /// Its counts since its start, and all that it has at this moment. Counting is always on.
    fn counters(&self) -> PyResult<PyCounters> {
        Ok(PyCounters::of(&self.name, self.agent()?.counters()))
    }

    /// Where it serves its counters by HTTP, `ADDRESS:PORT`, if `metrics` said so.
    #[getter]
    fn metrics_address(&self) -> PyResult<Option<String>> {
        Ok(self.agent()?.metrics_address().map(|address| address.to_string()))
    }

    /// The file into which it writes its counters, a `pathlib.Path`, if `metrics` said so.
    #[getter]
    fn metrics_file(&self) -> PyResult<Option<PathBuf>> {
        Ok(self.agent()?.metrics_file().map(Path::to_owned))
    }

    /// Registers the memory of an array, a tensor or a writable buffer under a label, by which peers find it. Peers may
    /// read and write it from now on. The object is kept until the registration has ended.
    #[pyo3(signature = (memory, label="memory"))]
    fn register(&self, py: Python<'_>, memory: &Bound<'_, PyAny>, label: &str) -> PyResult<Memory> {
        let agent = self.agent()?;
        if memory.is_instance_of::<Memory>() {
            return Err(PyTypeError::new_err("this is registered memory already"));
        }
        let found = memory_of(memory)?;
        let (addr, len) = (found.addr, found.len);
        let buffer = match found.device {
            // SAFETY: the object owns these bytes, and the region keeps the object.
            None => Buffer::of_region(unsafe { Region::foreign(addr, len, found.keep) }),
            Some(ordinal) => {
                let gpu = settings::open(py, GpuChoice::Cuda(ordinal))?;
                // SAFETY: the object owns this memory of the device, and the buffer keeps the object.
                let adopted = unsafe { gpu.adopt(addr, len, Arc::new(found.keep)) };
                adopted.map_err(|error| raised(py, &AgentError::from(error)))?
            }
        };
        py.detach(|| agent.register(buffer, label)).raise(py).map(Memory::new)
    }

    /// Allocates zeroed bytes that other processes of this machine can map, and registers them: memory of the agent's
    /// GPU if it has one, else of the host. `numpy.asarray(memory)` shares them.
    #[pyo3(signature = (nbytes, label="memory", *, host=false))]
    fn alloc(&self, py: Python<'_>, nbytes: u64, label: &str, host: bool) -> PyResult<Memory> {
        let agent = self.agent()?;
        let made = py.detach(|| match host {
            true => agent.alloc_host(nbytes, label),
            false => agent.alloc(nbytes, label),
        });
        made.raise(py).map(Memory::allocated)
    }

    /// The bytes that peers load to reach this agent: its addresses, its secret and its registered memory, or only these.
    /// Treat them like a password.
    #[pyo3(signature = (*only))]
    fn metadata<'py>(
        &self,
        py: Python<'py>,
        only: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let agent = self.agent()?;
        let mut held = Vec::with_capacity(only.len());
        for one in only {
            held.push(one.cast::<Memory>().map_err(PyErr::from)?.get().registration()?);
        }
        let bytes = py.detach(|| match held.is_empty() {
            true => agent.metadata(),
            false => {
                let these: Vec<_> = held.iter().map(|one| &**one).collect();
                agent.partial_metadata(&these)
            }
        });
        Ok(PyBytes::new(py, &bytes.raise(py)?))
    }

    /// Loads a peer's metadata, and returns the peer's name.
    fn load(&self, py: Python<'_>, metadata: Vec<u8>) -> PyResult<String> {
        let agent = self.agent()?;
        wait::done(py, move || agent.load_metadata(&metadata))?.raise(py)
    }

    /// Fetches the metadata of the agent that listens at `address`, loads it, and returns the peer's name. Both need the
    /// same `token`.
    #[pyo3(signature = (address, *, timeout=None))]
    fn fetch(&self, py: Python<'_>, address: &str, timeout: Option<f64>) -> PyResult<String> {
        let (agent, timeout) = self.deadline(timeout)?;
        let address = settings::address(address)?;
        wait::done(py, move || agent.fetch_metadata(address, timeout))?.raise(py)
    }

    /// Has the agent that listens at `address` load this agent's metadata. Both need the same `token`.
    #[pyo3(signature = (address, *, timeout=None))]
    fn send(&self, py: Python<'_>, address: &str, timeout: Option<f64>) -> PyResult<()> {
        let (agent, timeout) = self.deadline(timeout)?;
        let (address, metadata) = (settings::address(address)?, agent.metadata().raise(py)?);
        wait::done(py, move || agent.send_metadata(address, &metadata, timeout))?.raise(py)
    }

    /// Connects to a peer, which its first transfer would do otherwise.
    #[pyo3(signature = (peer, *, timeout=None))]
    fn connect(&self, py: Python<'_>, peer: String, timeout: Option<f64>) -> PyResult<()> {
        let (agent, timeout) = self.deadline(timeout)?;
        wait::done(py, move || agent.connect(&peer, timeout))?.raise(py)
    }

    /// Whether metadata of an agent of this name is loaded, and the agent is not known to be lost.
    fn knows(&self, peer: &str) -> PyResult<bool> {
        Ok(self.agent()?.knows(peer))
    }

    /// Forgets a peer. Its transfers fail.
    fn forget(&self, py: Python<'_>, peer: &str) -> PyResult<()> {
        let agent = self.agent()?;
        py.detach(|| agent.remove_peer(peer)).raise(py)
    }

    /// The newest memory that a peer registered under a label, as far as it is known here.
    #[pyo3(signature = (peer, label="memory"))]
    fn remote(&self, py: Python<'_>, peer: &str, label: &str) -> PyResult<PyRemoteMemory> {
        self.agent()?.remote(peer, label).raise(py).map(PyRemoteMemory)
    }

    /// Checks a list once, so that transfers can be made of its blocks by index.
    fn prepare(&self, py: Python<'_>, blocks: &Bound<'_, Blocks>) -> PyResult<PyPrepared> {
        prepare(py, &self.agent()?, blocks.get())
    }

    /// A transfer that is not posted yet: `op` is `"read"` or `"write"`. Of prepared lists, `local_index` and
    /// `remote_index` choose the blocks.
    #[pyo3(signature = (op, local, remote, local_index=None, remote_index=None))]
    fn transfer(
        &self,
        py: Python<'_>,
        op: &str,
        local: &Bound<'_, PyAny>,
        remote: &Bound<'_, PyAny>,
        local_index: Option<&Bound<'_, PyAny>>,
        remote_index: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTransfer> {
        let op = operation(op)?;
        if let (Ok(local), Ok(remote)) = (local.cast::<Blocks>(), remote.cast::<Blocks>()) {
            if local_index.is_some() || remote_index.is_some() {
                return Err(PyTypeError::new_err(
                    "indices choose among the blocks of prepared lists",
                ));
            }
            return self.made(py, op, local, remote);
        }
        let (Ok(local), Ok(remote)) = (local.cast::<PyPrepared>(), remote.cast::<PyPrepared>())
        else {
            return Err(PyTypeError::new_err("expected Blocks at both ends, or Prepared at both"));
        };
        let index = |given: Option<&Bound<'_, PyAny>>, of: &PyPrepared| match given {
            Some(given) => crate::indices::read(given),
            None => Ok((0..of.inner.len() as u32).collect()),
        };
        let here = index(local_index, local.get())?;
        let there = index(remote_index, remote.get())?;
        let (agent, of) = (self.agent()?, remote.get().of.clone());
        let make = move |local: &PyPrepared, remote: &PyPrepared| {
            agent.prepared_transfer(op, &local.inner, &here, &remote.inner, &there)
        };
        let (near, far) = (local.get(), remote.get());
        let made = match py.detach(|| wait::quick(|| make(near, far))) {
            Some(made) => made,
            None => {
                let (local, remote) = (local.clone().unbind(), remote.clone().unbind());
                wait::done(py, move || make(local.get(), remote.get()))?
            }
        };
        let made = made.raise(py)?;
        let nbytes = made.bytes();
        Ok(PyTransfer::new(made, op, of, nbytes))
    }

    /// Posts a transfer from a peer's memory to this agent's.
    #[pyo3(signature = (local, remote, *, notify=None, timeout=None))]
    fn read(
        &self,
        py: Python<'_>,
        local: &Bound<'_, Blocks>,
        remote: &Bound<'_, Blocks>,
        notify: Option<Vec<u8>>,
        timeout: Option<f64>,
    ) -> PyResult<PyTransfer> {
        self.posted(py, Op::Read, (local, remote), (notify, timeout))
    }

    /// Posts a transfer from this agent's memory to a peer's.
    #[pyo3(signature = (local, remote, *, notify=None, timeout=None))]
    fn write(
        &self,
        py: Python<'_>,
        local: &Bound<'_, Blocks>,
        remote: &Bound<'_, Blocks>,
        notify: Option<Vec<u8>>,
        timeout: Option<f64>,
    ) -> PyResult<PyTransfer> {
        self.posted(py, Op::Write, (local, remote), (notify, timeout))
    }

    /// Sends a notification that belongs to no transfer, and waits until the peer has it.
    #[pyo3(signature = (peer, message, *, timeout=None))]
    fn notify(
        &self,
        py: Python<'_>,
        peer: String,
        message: Vec<u8>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (agent, timeout) = self.deadline(timeout)?;
        let send = move || agent.send_notification(&peer, &message, timeout);
        let sent = match py.detach(|| wait::quick(&send)) {
            Some(sent) => sent,
            None => wait::done(py, send)?,
        };
        wait::arrived(py, &sent.raise(py)?)?.raise(py)
    }

    /// The oldest notification, `(peer, bytes)`, if there is one.
    fn next_notification<'py>(&self, py: Python<'py>) -> PyResult<Option<Notified<'py>>> {
        let found = self.agent()?.next_notification();
        Ok(found.map(|one| (one.from.name.to_string(), PyBytes::new(py, &one.bytes))))
    }

    /// Waits for the oldest notification: `(peer, bytes)`. Raises `Timeout` after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait_notification<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Notified<'py>> {
        let agent = self.agent()?;
        let timeout = wait::seconds(timeout)?;
        let found = wait::until(py, timeout, |slice| agent.wait_notification(slice).ok())?;
        let one = found.ok_or_else(|| {
            let after = timeout.unwrap_or_default();
            raised(py, &AgentError::Timeout { what: "a notification".into(), after })
        })?;
        Ok((one.from.name.to_string(), PyBytes::new(py, &one.bytes)))
    }

    /// Which path leads from memory of this agent to that of a peer, why no better one is taken, and how fast it is. If
    /// that is not known, up to 1 MiB of the peer's memory is read to measure it.
    fn explain(
        &self,
        py: Python<'_>,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, PyRemoteMemory>,
    ) -> PyResult<PyExplanation> {
        let agent = self.agent()?;
        let (here, there) = (local.get().registration()?, remote.get().0.clone());
        let found = wait::done(py, move || agent.explain(&here, &there))?;
        Ok(PyExplanation::of(&found.raise(py)?))
    }

    /// Ends it: its transfers end, and it waits for peers' copies, 10 s at most. Memory that peers might still write to
    /// after that is kept.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.origin.is_here() {
            return Ok(());
        }
        let inner = self.take();
        wait::done(py, move || drop(inner))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_how))]
    fn __exit__(&self, py: Python<'_>, _how: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        match self.inner.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(agent) => format!("<Agent {:?} at {}>", self.name, agent.address()),
            None => format!("<Agent {:?}, closed>", self.name),
        }
    }
}

impl Drop for PyAgent {
    fn drop(&mut self) {
        let Some(inner) = self.take() else { return };
        if !self.origin.is_here() {
            // Its threads stayed with the parent, so nothing here could end it.
            std::mem::forget(inner);
            return;
        }
        Python::attach(|py| py.detach(|| drop(inner)));
    }
}
