//! etcd, by which metadata travel if `NIXL_ETCD_ENDPOINTS` is set: its client is a package of Python's.

use crate::errors;
use pyo3::exceptions::{PyModuleNotFoundError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::env;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_nixl::{Error, Exchange, NAMESPACE, Status, Store};

/// `warpverbs.nixl._etcd.Etcd`.
#[derive(Clone)]
pub(super) struct Etcd(Arc<Py<PyAny>>);

impl Etcd {
    /// The one that the environment names. Nothing is imported and nothing reached before metadata go by it: the
    /// variable may be set for other programs.
    pub(super) fn from_env(py: Python<'_>) -> PyResult<Option<Self>> {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let Some(endpoints) = set("NIXL_ETCD_ENDPOINTS") else { return Ok(None) };
        if set("NIXL_TCPSTORE_ENDPOINT").is_some() {
            let why =
                "NIXL_ETCD_ENDPOINTS and NIXL_TCPSTORE_ENDPOINT are set, expected one of them";
            return Err(errors::invalid(py, why));
        }
        let class = py.import("warpverbs.nixl._etcd")?.getattr("Etcd")?;
        Ok(Some(Self(Arc::new(class.call1((endpoints,))?.unbind()))))
    }

    /// The same for the core.
    pub(super) fn store(&self) -> Store {
        let namespace = env::var("NIXL_ETCD_NAMESPACE").ok().filter(|value| !value.is_empty());
        let etcd = self.clone();
        Store::Other {
            namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            open: Arc::new(move || Ok(Box::new(etcd.clone()))),
        }
    }

    /// Raises what is wrong before any request: a client that is not installed, endpoints that are none.
    pub(super) fn check(&self, py: Python<'_>) -> PyResult<()> {
        let Err(error) = self.0.call_method0(py, "check") else { return Ok(()) };
        let status = match () {
            () if error.is_instance_of::<PyModuleNotFoundError>(py) => Status::NotSupported,
            () if error.is_instance_of::<PyValueError>(py) => Status::InvalidParam,
            () => return Err(error),
        };
        let raised = errors::raised(py, &Error::new(status, error.value(py).to_string()));
        raised.set_cause(py, Some(error));
        Err(raised)
    }

    /// Calls it from a thread of the core.
    fn ask<T>(&self, ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, String> {
        let asked = Python::try_attach(|py| {
            ask(self.0.bind(py)).map_err(|error| format!("etcd: {}", error.value(py)))
        });
        asked.unwrap_or_else(|| Err("etcd: the interpreter has ended".into()))
    }
}

impl Exchange for Etcd {
    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), String> {
        self.ask(|etcd| {
            let value = PyBytes::new(etcd.py(), bytes);
            etcd.call_method1("put", (key, value)).map(drop)
        })
    }

    fn get(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, String> {
        self.ask(|etcd| etcd.call_method1("get", (key, timeout.as_secs_f64()))?.extract())
    }
}
