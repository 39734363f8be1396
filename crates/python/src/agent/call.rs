//! How the core is called: while other threads have the interpreter, and where metadata go.

use super::NixlAgent;
use crate::text::Name;
use crate::{errors, wait};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use warpverbs_nixl::{Agent, Error, Place};

impl NixlAgent {
    /// Where metadata go to or come from.
    pub(super) fn place(
        &self,
        py: Python<'_>,
        host: Name,
        port: i64,
        label: Name,
    ) -> PyResult<Place> {
        if host.0.is_empty() {
            self.etcd.as_ref().map_or(Ok(()), |etcd| etcd.check(py))?;
            return Ok(Place::Store { label: label.0 });
        }
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| PyValueError::new_err("a port is 1 to 65535"))?;
        Ok(Place::Agent { host: host.0, port })
    }

    /// Calls the core while other threads have the interpreter.
    pub(super) fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Agent) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let agent = self.inner.agent(py)?;
        py.detach(|| {
            let made = call(&agent);
            // Here, since the last clone ends the agent.
            drop(agent);
            made
        })
        .map_err(|error| errors::raised(py, &error))
    }

    /// As [`Self::call`], for what the program named as backends: they must be this agent's.
    pub(super) fn call_by<T: Send>(
        &self,
        py: Python<'_>,
        backends: &[u64],
        call: impl FnOnce(&Agent) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.call(py, |agent| {
            backends.iter().try_for_each(|each| agent.backend_plugin(*each).map(drop))?;
            call(agent)
        })
    }

    /// As [`Self::call_by`], for a call that may wait for a peer. After Ctrl-C the exception comes at once, while
    /// the call goes on to its own end.
    pub(super) fn call_long<T: Send + 'static>(
        &self,
        py: Python<'_>,
        backends: &[u64],
        call: impl FnOnce(&Agent) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let agent = self.of(py, backends)?;
        let made = wait::done(py, move || {
            let made = call(&agent);
            drop(agent);
            made
        })?;
        made.map_err(|error| errors::raised(py, &error))
    }

    /// As [`Self::call_long`], for a call that rarely has to wait: it is made twice then.
    pub(super) fn call_quick<T: Send + 'static>(
        &self,
        py: Python<'_>,
        backends: &[u64],
        call: impl Fn(&Agent) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let agent = self.of(py, backends)?;
        // Where the call is not needed any more it is dropped here, since the last clone ends the agent.
        let made = py.detach(move || {
            let made = wait::quick(|| call(&agent));
            made.ok_or((call, agent))
        });
        let made = match made {
            Ok(made) => made,
            Err((call, agent)) => wait::done(py, move || call(&agent))?,
        };
        made.map_err(|error| errors::raised(py, &error))
    }

    /// The agent, if these are backends of it.
    fn of(&self, py: Python<'_>, backends: &[u64]) -> PyResult<Arc<Agent>> {
        let agent = self.inner.agent(py)?;
        let known = backends.iter().try_for_each(|each| agent.backend_plugin(*each).map(drop));
        known.map_err(|error| errors::raised(py, &error))?;
        Ok(agent)
    }
}
