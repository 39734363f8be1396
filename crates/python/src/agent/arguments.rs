//! Arguments of `nixlAgent` that come in several forms.

use crate::arrays::Array;
use crate::lists::XferList;
use crate::text::{Blob, Name};
use crate::{enums, errors};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;
use warpverbs_nixl::{Agent, Error, Kind, List, Op, Plugin, Prepared, Status, Strided};

/// The plugin of a name.
pub(super) fn plugin_of(py: Python<'_>, name: &str) -> PyResult<Plugin> {
    Plugin::named(name).map_err(|error| errors::raised(py, &error))
}

/// Ranges to be looked up.
pub(super) enum Ranges {
    /// One by one.
    List(Arc<List>),
    /// Blocks at equal distances.
    Strided(Kind, Vec<Strided>),
}

impl Ranges {
    /// Looks them up.
    pub(super) fn prepare(self, agent: &Agent, side: &str) -> Result<Prepared, Error> {
        match self {
            Self::List(list) => agent.prepare(side, &list),
            Self::Strided(kind, rows) => agent.prepare_strided(side, kind, &rows),
        }
    }
}

/// One side of transfers.
pub(super) struct Side {
    /// Whose; empty for the own side.
    pub(super) agent: String,
    /// Its ranges.
    pub(super) rows: Ranges,
    /// The backends that the program named.
    pub(super) backends: Vec<u64>,
}

const FORMS: &str = "prepXferDlist takes (descs), (agent_name, descs) or (agent_name, mem_type, array with five \
                     columns), and backend, a list of numbers";

/// The arguments of `prepXferDlist`, by place or by name.
pub(super) fn side(
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<Side> {
    let mut places = args.iter().peekable();
    let mut by_name = 0;
    let mut named = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        let found = kwargs.map(|all| all.get_item(name)).transpose()?.flatten();
        by_name += usize::from(found.is_some());
        Ok(found)
    };
    let [agent, kind, descs, backend] =
        ["agent_name", "mem_type", "descs", "backend"].map(&mut named);
    let is_list = |object: &Bound<'_, PyAny>| object.cast::<XferList>().is_ok();
    let agent = agent?.or_else(|| places.next_if(|first| !is_list(first)));
    let agent = agent.map_or(Ok(String::new()), |name| name.extract().map(|Name(name)| name))?;
    let descs = descs?;
    let strided = descs.as_ref().is_some_and(|descs| !is_list(descs));
    let kind =
        kind?.or_else(|| places.next_if(|next| strided || (descs.is_none() && !is_list(next))));
    let wrong = || PyTypeError::new_err(FORMS);
    let descs = descs.or_else(|| places.next()).ok_or_else(wrong)?;
    let backends = backend?.or_else(|| places.next());
    let backends = backends.map_or(Ok(Vec::new()), |given| given.extract())?;
    if places.next().is_some() || by_name != kwargs.map_or(0, |all| all.len()) {
        return Err(wrong());
    }
    let rows = match (kind, descs.cast::<XferList>()) {
        (None, Ok(list)) => Ranges::List(list.get().list.now()),
        (Some(kind), Err(_)) => {
            let array = Array::of(&descs)?.ok_or_else(wrong)?;
            let row = |[addr, len, dev, stride, count]: [u64; 5]| Strided {
                addr,
                len,
                dev,
                stride,
                count,
            };
            let rows = array.rows::<5>()?.into_iter().map(row).collect();
            Ranges::Strided(enums::kind_of(&kind)?, rows)
        }
        _ => return Err(wrong()),
    };
    Ok(Side { agent, rows, backends })
}

/// The direction of a number.
pub(super) fn operation(number: u32) -> PyResult<Op> {
    match number {
        0 => Ok(Op::Read),
        1 => Ok(Op::Write),
        _ => Err(PyValueError::new_err(format!("{number} is neither NIXL_READ nor NIXL_WRITE"))),
    }
}

/// A notification, if there is one.
pub(super) fn message(Blob(bytes): Blob) -> Option<Vec<u8>> {
    (!bytes.is_empty()).then_some(bytes)
}

/// Names of the kinds of memory that a plugin moves.
pub(super) fn kinds(plugin: Plugin) -> Vec<&'static str> {
    plugin.kinds().iter().map(|kind| kind.name()).collect()
}

/// NIXL's views are of UCX, which is compiled into the kernels of its programs.
pub(super) fn no_views(py: Python<'_>) -> PyErr {
    let why = "memory views for kernels of UCX; kernels of warpverbs have views of their own";
    errors::raised(py, &Error::new(Status::NotSupported, why))
}
