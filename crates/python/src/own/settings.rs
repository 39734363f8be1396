//! An agent's settings, as Python gives them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use warpverbs_agent::{AgentConfig, AgentError, MetricsTo, PathKind};
use warpverbs_gpu::{Gpu, GpuChoice};

/// `HOST:PORT`, or an address, with a port that the system chooses.
pub(crate) fn address(text: &str) -> PyResult<SocketAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((ip, 0).into());
    }
    let found = text.to_socket_addrs().map(|mut all| all.next());
    let wrong = |why: String| {
        let text = format!("address {text:?}: {why}, expected HOST:PORT or an IP address");
        PyValueError::new_err(text)
    };
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(wrong("the name has no address".into())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// A path by its name, as `explain` prints it; `_` and `-` are spaces.
pub(crate) fn path(text: &str) -> PyResult<PathKind> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], " ");
    let found = PathKind::ALL.into_iter().find(|kind| plain(&kind.to_string()) == plain(text));
    found.ok_or_else(|| {
        let all = PathKind::ALL.map(|kind| kind.to_string()).join(", ");
        PyValueError::new_err(format!("path {text:?}, expected one of {all}"))
    })
}

/// Where metrics go: by a text as the variable `WARPVERBS_METRICS` has it, or by an object that is a path.
pub(crate) fn metrics(to: &Bound<'_, PyAny>) -> PyResult<MetricsTo> {
    match to.extract::<&str>() {
        Ok(text) => {
            text.parse().map_err(|error: AgentError| PyValueError::new_err(error.to_string()))
        }
        Err(_) => Ok(MetricsTo::file(to.extract::<PathBuf>()?)),
    }
}

/// The device named; without a name the one that PyTorch uses, if it uses one.
pub(crate) fn gpu(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Arc<dyn Gpu>>> {
    let choice = match name {
        Some(name) => {
            let parsed = name.parse::<GpuChoice>();
            parsed.map_err(|error| PyValueError::new_err(error.to_string()))?
        }
        None => match current(py)? {
            Some(ordinal) => GpuChoice::Cuda(ordinal),
            None => return Ok(None),
        },
    };
    open(py, choice).map(Some)
}

/// Opens a device.
pub(crate) fn open(py: Python<'_>, choice: GpuChoice) -> PyResult<Arc<dyn Gpu>> {
    let opened = py.detach(|| warpverbs_gpu::open(choice));
    opened.map_err(|error| PyValueError::new_err(format!("{choice}: {error}")))
}

/// The CUDA device that PyTorch uses in this process. It is not imported for that.
pub(crate) fn current(py: Python<'_>) -> PyResult<Option<u32>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(cuda) = modules.get_item("torch.cuda") else { return Ok(None) };
    if !cuda.call_method0("is_initialized")?.is_truthy()? {
        return Ok(None);
    }
    cuda.call_method0("current_device")?.extract().map(Some)
}

/// The settings that are lists of words.
pub(crate) fn paths(
    mut config: AgentConfig,
    require: Option<&str>,
    without: &[String],
) -> PyResult<AgentConfig> {
    if let Some(required) = require {
        config = config.require(path(required)?);
    }
    for one in without {
        config = config.without(path(one)?);
    }
    Ok(config)
}
