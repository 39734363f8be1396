//! Exceptions of NIXL's names. The text begins with the status' name, and says the cause.

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::ffi::CStr;
use warpverbs_nixl::{Error, Status};

/// A status, the class that is raised for it, and what that class says of itself.
type Class = (Status, &'static CStr, &'static CStr);

const CLASSES: [Class; 12] = [
    (Status::NotPosted, c"nixl._bindings.nixlNotPostedError", c"The transfer was not posted."),
    (Status::InvalidParam, c"nixl._bindings.nixlInvalidParamError", c"A parameter is wrong."),
    (Status::Backend, c"nixl._bindings.nixlBackendError", c"The path between agents failed."),
    (Status::NotFound, c"nixl._bindings.nixlNotFoundError", c"No such name, memory or agent."),
    (Status::Mismatch, c"nixl._bindings.nixlMismatchError", c"Two values that must agree do not."),
    (Status::NotAllowed, c"nixl._bindings.nixlNotAllowedError", c"This is not allowed now."),
    (Status::RepostActive, c"nixl._bindings.nixlRepostActiveError", c"It is in progress already."),
    (
        Status::Unknown,
        c"nixl._bindings.nixlUnknownError",
        c"A failure without a status of its own.",
    ),
    (Status::NotSupported, c"nixl._bindings.nixlNotSupportedError", c"It is not there."),
    (Status::RemoteDisconnect, c"nixl._bindings.nixlRemoteDisconnectError", c"The peer is lost."),
    (Status::Cancelled, c"nixl._bindings.nixlCancelledError", c"The transfer was cancelled."),
    (Status::NoTelemetry, c"nixl._bindings.nixlNoTelemetryError", c"Telemetry is switched off."),
];

static TYPES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

fn types(py: Python<'_>) -> PyResult<&[Py<PyType>]> {
    let base = py.get_type::<PyException>();
    let made = TYPES.get_or_try_init(py, || {
        let each = CLASSES.iter();
        each.map(|(_, name, doc)| PyErr::new_type(py, name, Some(doc), Some(&base), None)).collect()
    })?;
    Ok::<_, PyErr>(made.as_slice())
}

/// The exception of an error, with `status`, the name of NIXL's status, and `kind`, a word.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).unwrap_or_else(|other| other)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let text = error.to_string();
    let Some(place) = CLASSES.iter().position(|(status, _, _)| *status == error.status) else {
        return Ok(PyRuntimeError::new_err(text));
    };
    let value = types(py)?[place].bind(py).call1((text,))?;
    let name = error.status.name();
    value.setattr("status", name)?;
    value.setattr("kind", name.trim_start_matches("NIXL_ERR_").to_lowercase())?;
    Ok(PyErr::from_value(value))
}

/// A wrong parameter, refused before the core sees it.
pub(crate) fn invalid(py: Python<'_>, why: impl Into<String>) -> PyErr {
    raised(py, &Error::new(Status::InvalidParam, why))
}

/// Something that is not there, found before the core is asked.
pub(crate) fn not_found(py: Python<'_>, why: impl Into<String>) -> PyErr {
    raised(py, &Error::new(Status::NotFound, why))
}

/// Puts the classes into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for class in types(module.py())? {
        let class = class.bind(module.py());
        module.add(class.name()?, class)?;
    }
    Ok(())
}
