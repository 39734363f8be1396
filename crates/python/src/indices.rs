//! Indices of prepared descriptors: a list of numbers, or an array of any integer type.

use crate::{arrays::Array, errors};
use pyo3::prelude::*;
use pyo3::types::PyList;
use warpverbs_nixl::MOST_DESCRIPTORS;

/// Reads them.
///
/// # Errors
/// It is neither, or one of them is negative or larger than an index can be.
pub(crate) fn read(object: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let py = object.py();
    let narrow = |value: u64| {
        let index = u32::try_from(value).ok();
        index.ok_or_else(|| errors::invalid(py, format!("no descriptor has the index {value}")))
    };
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|each| index(&each)).collect();
    }
    if let Some(array) = Array::of(object)? {
        return match array.indices() {
            Some(all) => Ok(all),
            None => array.values()?.into_iter().map(narrow).collect(),
        };
    }
    let each = object.try_iter()?.map(|each| index(&each?));
    let found: Vec<u32> = each.take(MOST_DESCRIPTORS + 1).collect::<PyResult<_>>()?;
    if found.len() > MOST_DESCRIPTORS {
        return Err(errors::invalid(py, format!("at most {MOST_DESCRIPTORS} indices")));
    }
    Ok(found)
}

fn index(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    let value: i64 = object.extract()?;
    let why = || errors::invalid(object.py(), format!("no descriptor has the index {value}"));
    u32::try_from(value).map_err(|_| why())
}

/// Offsets: a sequence of numbers, or an array of any integer type.
///
/// # Errors
/// It is neither, or one of them is negative.
pub(crate) fn numbers(object: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if let Some(array) = Array::of(object)? {
        return array.values();
    }
    let each = object.try_iter()?.map(|each| each?.extract::<u64>());
    let found: Vec<u64> = each.take(MOST_DESCRIPTORS + 1).collect::<PyResult<_>>()?;
    if found.len() > MOST_DESCRIPTORS {
        return Err(errors::invalid(object.py(), format!("at most {MOST_DESCRIPTORS} offsets")));
    }
    Ok(found)
}
