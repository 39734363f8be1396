//! Names and messages, which programs give as `str` or as `bytes`.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

/// Bytes, or the UTF-8 of a text.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Blob(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Blob {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self(text.to_str()?.as_bytes().to_vec()));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Self(bytes.to_vec()));
        }
        let class = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("str or bytes are expected, not {class}")))
    }
}

/// A name: text, or bytes that are UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) String);

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Blob(bytes) = object.extract()?;
        let text = String::from_utf8(bytes);
        text.map(Self).map_err(|wrong| PyValueError::new_err(format!("a name is text: {wrong}")))
    }
}
