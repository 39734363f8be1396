//! How the core is called: while other threads have the interpreter.

use super::NixlAgent;
use crate::{errors, wait};
use pyo3::prelude::*;
use std::sync::Arc;
use warpverbs_nixl::{Agent, Error};

impl NixlAgent {
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
