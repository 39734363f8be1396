//! `nixl._bindings.nixlAgent`, over the core's agent. Every call that may wait gives the interpreter to
//! other threads meanwhile.

mod adopt;
mod arguments;
mod call;
mod etcd;
mod life;
mod polls;
mod telemetry;

use crate::agent::adopt::Lent;
use crate::agent::arguments::{Side, kinds, message, no_views, plugin_of, side};
use crate::agent::etcd::Etcd;
use crate::agent::life::{Inner, lock};
use crate::agent::polls::{GLANCE, Polls};
use crate::lists::{RegionList, XferList};
use crate::text::{Blob, Name};
use crate::{enums, errors, indices, own, wait};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::sync::Arc;
use telemetry::XferTelemetry;
use warpverbs_nixl::{Agent, Config, CurrentGpu, Params, Plugin, Status};

/// Backends by number; empty for all.
type Backends = Vec<u64>;

/// An agent: memory, peers, and transfers between them. Any thread may use it.
#[pyclass(frozen, weakref, name = "nixlAgent", module = "nixl._bindings")]
pub(crate) struct NixlAgent {
    inner: Arc<Inner>,
    polls: Polls,
    /// By which metadata without an address travel.
    etcd: Option<Etcd>,
}

impl NixlAgent {
    fn done(py: Python<'_>) -> PyResult<Py<PyAny>> {
        enums::status(py, Status::Success)
    }
}

#[pymethods]
#[allow(non_snake_case)]
impl NixlAgent {
    #[new]
    fn new(py: Python<'_>, agent_name: Name, config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Name(name) = agent_name;
        if name.is_empty() {
            return Err(PyValueError::new_err("an agent needs a name that is not empty"));
        }
        let listens: bool = config.getattr("useListenThread")?.extract()?;
        let port: i64 = config.getattr("listenPort")?.extract()?;
        let listen = u16::try_from(port).ok().filter(|_| listens);
        if listens && listen.is_none() {
            return Err(PyValueError::new_err(format!(
                "listenPort is {port}, expected 0 to 65535"
            )));
        }
        let telemetry = config.getattr("captureTelemetry")?.extract()?;
        crate::own::log::start(py)?;
        let etcd = Etcd::from_env(py)?;
        let made = py.detach(|| {
            let config = Config { listen, ..Config::from_env()?.telemetry(telemetry) };
            let store = etcd.as_ref().map(Etcd::store).or_else(|| config.store.clone());
            let config = Config { store, ..config };
            let current_gpu: Option<Arc<CurrentGpu>> = Some(Arc::new(own::current_gpu));
            let config = Config { current_gpu, ..config };
            Agent::new(&name, config)
        });
        let agent = made.map_err(|error| errors::raised(py, &error))?;
        let port = listen.and_then(|_| agent.agent().ok()).map(|agent| agent.address().port());
        let inner = Inner::new(agent);
        if let Some(port) = port {
            // Programs that choose port 0 for an agent look for this line.
            py.import("warpverbs.nixl._notes")?.call_method1("listening", (port,))?;
        }
        Ok(Self { inner, polls: Polls::default(), etcd })
    }

    /// Names of the plugins.
    fn getAvailPlugins(&self) -> Vec<&'static str> {
        Plugin::ALL.iter().map(|plugin| plugin.name()).collect()
    }

    /// A plugin's options with their defaults, and the kinds of memory that it moves.
    fn getPluginParams(
        &self,
        py: Python<'_>,
        r#type: Name,
    ) -> PyResult<(Params, Vec<&'static str>)> {
        let plugin = plugin_of(py, &r#type.0)?;
        Ok((plugin.params(), kinds(plugin)))
    }

    /// A backend's options, and the kinds of memory that it moves.
    fn getBackendParams(
        &self,
        py: Python<'_>,
        backend: u64,
    ) -> PyResult<(Params, Vec<&'static str>)> {
        self.call(py, |agent| {
            Ok((agent.backend_params(backend)?, kinds(agent.backend_plugin(backend)?)))
        })
    }

    /// Lets the agent use a plugin; returns a number for it.
    fn createBackend(&self, py: Python<'_>, r#type: Name, initParams: Params) -> PyResult<u64> {
        let plugin = plugin_of(py, &r#type.0)?;
        let id = self.call(py, |agent| agent.create_backend(plugin.name(), &initParams))?;
        lock(&self.inner.backends).push((plugin, id));
        let notes = py.import("warpverbs.nixl._notes")?;
        notes.call_method1("backend", (plugin.name(), initParams))?;
        Ok(id)
    }

    /// Registers memory: other agents may reach it, and this one move it.
    #[pyo3(signature = (descs, backends=Backends::new()))]
    fn registerMem(
        &self,
        py: Python<'_>,
        descs: &RegionList,
        backends: Backends,
    ) -> PyResult<Py<PyAny>> {
        let lent = Lent::of(py, descs);
        self.call_by(py, &backends, |agent| lent.register(agent))?;
        Self::done(py)
    }

    /// Deregisters memory: when it returns, nobody touches it any more. An agent that has ended has none, and
    /// destructors that run after it must not fail.
    #[pyo3(signature = (descs, backends=Backends::new()))]
    fn deregisterMem(
        &self,
        py: Python<'_>,
        descs: &RegionList,
        backends: Backends,
    ) -> PyResult<Py<PyAny>> {
        if !self.inner.has_ended() {
            let list = descs.list.now();
            self.call_long(py, &backends, move |agent| agent.deregister(&list))?;
        }
        Self::done(py)
    }

    /// Asks a backend for each range: a file's size, mode and time of change, or None.
    fn queryMem(
        &self,
        py: Python<'_>,
        descs: &RegionList,
        backend: u64,
    ) -> PyResult<Vec<Option<Params>>> {
        let list = descs.list.now();
        self.call(py, |agent| agent.query(&list, backend))
    }

    /// Connects to another agent.
    #[pyo3(signature = (remote_agent, backends=Backends::new()))]
    fn makeConnection(
        &self,
        py: Python<'_>,
        remote_agent: Name,
        backends: Backends,
    ) -> PyResult<Py<PyAny>> {
        self.call_long(py, &backends, move |agent| agent.connect(&remote_agent.0))?;
        Self::done(py)
    }

    /// Looks ranges up: `([agent_name], descs)` or `(agent_name, mem_type, array)` with five columns, and
    /// backends.
    #[pyo3(signature = (*args, **kwargs))]
    fn prepXferDlist(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let Side { agent: name, rows, backends } = side(args, kwargs)?;
        let prepared = self.call_by(py, &backends, |agent| rows.prepare(agent, &name))?;
        Ok(self.inner.lists.add(prepared))
    }

    /// A transfer between prepared lists, by indices.
    #[pyo3(signature = (operation, local_side, local_indices, remote_side, remote_indices,
        notif_msg=Blob::default(), backend=Backends::new(), skip_desc_merg=false))]
    #[expect(clippy::too_many_arguments, reason = "it is NIXL's interface")]
    fn makeXferReq(
        &self,
        py: Python<'_>,
        operation: u32,
        local_side: u64,
        local_indices: &Bound<'_, PyAny>,
        remote_side: u64,
        remote_indices: &Bound<'_, PyAny>,
        notif_msg: Blob,
        backend: Backends,
        skip_desc_merg: bool,
    ) -> PyResult<u64> {
        // Blocks that touch are one in any case.
        let _ = skip_desc_merg;
        let op = arguments::operation(operation)?;
        let lists = &self.inner;
        let (local, remote) = (lists.list(py, local_side)?, lists.list(py, remote_side)?);
        let (here, there) = (indices::read(local_indices)?, indices::read(remote_indices)?);
        let notification = message(notif_msg);
        let made = self.call_quick(py, &backend, move |agent| {
            agent.make(op, (&local, &here), (&remote, &there), notification.clone())
        })?;
        Ok(self.inner.transfers.add(made))
    }

    /// A transfer between two lists, range by range.
    #[pyo3(signature = (operation, local_descs, remote_descs, remote_agent, notif_msg=Blob::default(),
        backend=Backends::new()))]
    #[expect(clippy::too_many_arguments, reason = "it is NIXL's interface")]
    fn createXferReq(
        &self,
        py: Python<'_>,
        operation: u32,
        local_descs: &XferList,
        remote_descs: &XferList,
        remote_agent: Name,
        notif_msg: Blob,
        backend: Backends,
    ) -> PyResult<u64> {
        let op = arguments::operation(operation)?;
        let (here, there) = (local_descs.list.now(), remote_descs.list.now());
        let notification = message(notif_msg);
        let made = self.call_quick(py, &backend, move |agent| {
            agent.create(op, &here, &there, &remote_agent.0, notification.clone())
        })?;
        Ok(self.inner.transfers.add(made))
    }

    /// Microseconds that it may take, by how many that may be wrong, and how that was found.
    fn estimateXferCost(&self, py: Python<'_>, req_handle: u64) -> PyResult<(u64, u64, u32)> {
        let found = self.inner.transfer(py, req_handle)?.estimate();
        let estimate = found.map_err(|error| errors::raised(py, &error))?;
        Ok((estimate.duration_us, estimate.margin_us, u32::from(!estimate.measured)))
    }

    /// Begins a transfer. A notification here takes the place of the one that it was made with.
    #[pyo3(signature = (reqh, notif_msg=Blob::default()))]
    fn postXferReq(&self, py: Python<'_>, reqh: u64, notif_msg: Blob) -> PyResult<Py<PyAny>> {
        let (transfer, notification) = (self.inner.transfer(py, reqh)?, message(notif_msg));
        let posted = if transfer.is_brief(&notification) {
            // Shorter than giving the interpreter away and taking it back.
            transfer.post(notification)
        } else if transfer.holds_up(&notification) {
            wait::done(py, move || transfer.post(notification))?
        } else {
            py.detach(|| transfer.post(notification))
        };
        enums::status(py, posted.map_err(|error| errors::raised(py, &error))?)
    }

    /// Whether it is over. A failure is an exception.
    fn getXferStatus(&self, py: Python<'_>, reqh: u64) -> PyResult<Py<PyAny>> {
        let transfer = self.inner.transfer(py, reqh)?;
        let mut status = transfer.status();
        if matches!(status, Ok(Status::InProgress)) {
            py.detach(|| {
                // The state says the same.
                let _ = transfer.wait(GLANCE);
            });
            status = transfer.status();
        }
        enums::status(py, status.map_err(|error| errors::raised(py, &error))?)
    }

    /// The cost of the last post.
    fn getXferTelemetry(&self, py: Python<'_>, reqh: u64) -> PyResult<XferTelemetry> {
        let found = self.inner.transfer(py, reqh)?.telemetry();
        found.map(XferTelemetry::from).map_err(|error| errors::raised(py, &error))
    }

    /// The backend that carries it.
    fn queryXferBackend(&self, py: Python<'_>, reqh: u64) -> PyResult<u64> {
        let plugin = self.inner.transfer(py, reqh)?.plugin();
        let backends = lock(&self.inner.backends);
        let found = backends.iter().find(|(one, _)| *one == plugin).map(|(_, id)| *id);
        found.ok_or_else(|| {
            errors::not_found(py, format!("no backend {} was created", plugin.name()))
        })
    }

    /// Gives a transfer back; cancels it first, if it is in progress.
    fn releaseXferReq(&self, py: Python<'_>, reqh: u64) -> PyResult<Py<PyAny>> {
        if self.inner.is_over() {
            return Self::done(py);
        }
        let transfer = self.inner.transfers.take(py, reqh)?;
        py.detach(|| drop(transfer));
        Self::done(py)
    }

    /// Gives a prepared list back.
    fn releasedDlistH(&self, py: Python<'_>, handle: u64) -> PyResult<Py<PyAny>> {
        if self.inner.is_over() {
            return Self::done(py);
        }
        let list = self.inner.lists.take(py, handle)?;
        py.detach(|| drop(list));
        Self::done(py)
    }

    /// Appends new notifications to a dictionary of lists by sender, and returns it.
    #[pyo3(signature = (notif_map, backends=Backends::new()))]
    fn getNotifs<'py>(
        &self,
        py: Python<'py>,
        notif_map: Bound<'py, PyDict>,
        backends: Backends,
    ) -> PyResult<Bound<'py, PyDict>> {
        let glance = self.polls.glance();
        let new = self.call_by(py, &backends, |agent| Ok(agent.notifications_within(glance)))?;
        self.polls.found(!new.is_empty());
        for (sender, messages) in new {
            let list = match notif_map.get_item(&sender)? {
                Some(list) => list,
                None => {
                    let list = PyList::empty(py);
                    notif_map.set_item(&sender, &list)?;
                    list.into_any()
                }
            };
            for bytes in messages {
                list.call_method1("append", (PyBytes::new(py, &bytes),))?;
            }
        }
        Ok(notif_map)
    }

    /// Sends a notification that belongs to no transfer.
    #[pyo3(signature = (remote_agent, msg, backends=Backends::new()))]
    fn genNotif(
        &self,
        py: Python<'_>,
        remote_agent: Name,
        msg: Blob,
        backends: Backends,
    ) -> PyResult<Py<PyAny>> {
        let sent = self.call_quick(py, &backends, move |agent| {
            agent.send_notification(&remote_agent.0, &msg.0)
        })?;
        wait::arrived(py, &sent)?.map_err(|error| errors::raised(py, &error.into()))?;
        Self::done(py)
    }

    /// Bytes by which others reach this agent and its memory.
    fn getLocalMD<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.call(py, Agent::metadata)?))
    }

    /// The same, of some of its memory.
    #[pyo3(signature = (descs, inc_conn_info=false, backends=Backends::new()))]
    fn getLocalPartialMD<'py>(
        &self,
        py: Python<'py>,
        descs: &RegionList,
        inc_conn_info: bool,
        backends: Backends,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // How to reach the agent is in all of them: without it nobody knows whose memory it is.
        let _ = inc_conn_info;
        let list = descs.list.now();
        let bytes = self.call_by(py, &backends, |agent| agent.partial_metadata(&list))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Takes what another agent gave; returns its name.
    fn loadRemoteMD<'py>(
        &self,
        py: Python<'py>,
        remote_metadata: Blob,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let name = self.call_long(py, &[], move |agent| agent.load(&remote_metadata.0))?;
        Ok(PyBytes::new(py, name.as_bytes()))
    }

    /// Forgets an agent; returns whether it was known. An agent that has ended knows none.
    fn invalidateRemoteMD(&self, py: Python<'_>, remote_agent: Name) -> PyResult<Py<PyAny>> {
        if self.inner.has_ended() {
            return enums::status(py, Status::NotFound);
        }
        let forgot = self.call(py, |agent| Ok(agent.forget(&remote_agent.0).is_ok()))?;
        enums::status(py, if forgot { Status::Success } else { Status::NotFound })
    }

    /// Sends this agent's metadata; returns at once.
    #[pyo3(signature = (ip_addr=Name(String::new()), port=0))]
    fn sendLocalMD(&self, py: Python<'_>, ip_addr: Name, port: i64) -> PyResult<()> {
        let place = self.place(py, ip_addr, port, Name(String::new()))?;
        self.call(py, |agent| agent.send_metadata(None, place))
    }

    /// Sends metadata of some memory; returns at once.
    #[pyo3(signature = (descs, inc_conn_info=false, backends=Backends::new(), ip_addr=Name(String::new()),
        port=0, label=Name(String::new())))]
    #[expect(clippy::too_many_arguments, reason = "it is NIXL's interface")]
    fn sendLocalPartialMD(
        &self,
        py: Python<'_>,
        descs: &RegionList,
        inc_conn_info: bool,
        backends: Backends,
        ip_addr: Name,
        port: i64,
        label: Name,
    ) -> PyResult<()> {
        let _ = inc_conn_info;
        let (list, place) = (descs.list.now(), self.place(py, ip_addr, port, label)?);
        self.call_by(py, &backends, |agent| agent.send_metadata(Some(&list), place))
    }

    /// Asks for an agent's metadata; returns at once.
    #[pyo3(signature = (remote_agent, ip_addr=Name(String::new()), port=0, label=Name(String::new())))]
    fn fetchRemoteMD(
        &self,
        py: Python<'_>,
        remote_agent: Name,
        ip_addr: Name,
        port: i64,
        label: Name,
    ) -> PyResult<()> {
        let place = self.place(py, ip_addr, port, label)?;
        self.call(py, |agent| agent.fetch_metadata(&remote_agent.0, place))
    }

    /// Has another agent forget this one; returns at once.
    #[pyo3(signature = (ip_addr=Name(String::new()), port=0))]
    fn invalidateLocalMD(&self, py: Python<'_>, ip_addr: Name, port: i64) -> PyResult<()> {
        let place = self.place(py, ip_addr, port, Name(String::new()))?;
        self.call(py, |agent| agent.withdraw_metadata(place))
    }

    /// Whether an agent's metadata is here and has all of these ranges.
    fn checkRemoteMD(
        &self,
        py: Python<'_>,
        remote_agent: Name,
        descs: &XferList,
    ) -> PyResult<Py<PyAny>> {
        let list = descs.list.now();
        let knows = self.call(py, |agent| Ok(agent.knows(&remote_agent.0, Some(&list))))?;
        enums::status(py, if knows { Status::Success } else { Status::NotFound })
    }

    /// Not supported.
    #[pyo3(signature = (dlist, backends=Backends::new()))]
    fn prepMemView(
        &self,
        py: Python<'_>,
        dlist: &Bound<'_, PyAny>,
        backends: Backends,
    ) -> PyResult<u64> {
        let _ = (dlist, backends);
        Err(no_views(py))
    }

    /// Not supported.
    fn releaseMemView(&self, py: Python<'_>, mvh: u64) -> PyResult<()> {
        let _ = mvh;
        Err(no_views(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("nixlAgent({:?})", self.inner.agent(py)?.name()))
    }
}

/// Puts the classes into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    life::watch(module.py())?;
    module.add_class::<NixlAgent>()?;
    module.add_class::<XferTelemetry>()
}
