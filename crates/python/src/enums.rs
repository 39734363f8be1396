//! Members of the enumerations that Python's half of the package defines.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use warpverbs_nixl::{Kind, Status};

struct Members {
    kinds: Vec<Py<PyAny>>,
    success: Py<PyAny>,
    in_progress: Py<PyAny>,
    not_found: Py<PyAny>,
}

static MEMBERS: PyOnceLock<Members> = PyOnceLock::new();

fn members(py: Python<'_>) -> PyResult<&Members> {
    MEMBERS.get_or_try_init(py, || {
        let module = py.import("warpverbs.nixl._enums")?;
        let get = |name: &str| module.getattr(name).map(Bound::unbind);
        Ok(Members {
            kinds: Kind::ALL.iter().map(|kind| get(kind.name())).collect::<PyResult<_>>()?,
            success: get(Status::Success.name())?,
            in_progress: get(Status::InProgress.name())?,
            not_found: get(Status::NotFound.name())?,
        })
    })
}

/// The member of a kind of memory.
pub(crate) fn kind(py: Python<'_>, kind: Kind) -> PyResult<Py<PyAny>> {
    Ok(members(py)?.kinds[kind as usize].clone_ref(py))
}

/// The member of a state; other failures than a missing name are exceptions.
pub(crate) fn status(py: Python<'_>, status: Status) -> PyResult<Py<PyAny>> {
    let members = members(py)?;
    let member = match status {
        Status::Success => &members.success,
        Status::InProgress => &members.in_progress,
        _ => &members.not_found,
    };
    Ok(member.clone_ref(py))
}

/// The kind of memory that a member, or its number, stands for.
pub(crate) fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let number: u32 = object.extract()?;
    Kind::of_number(number).ok_or_else(|| {
        let all: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let why = format!("{number} is no kind of memory; there are {}", all.join(", "));
        PyValueError::new_err(why)
    })
}
