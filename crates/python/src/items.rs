//! Rows of the lists of descriptors: as tuples of Python, and as bytes of a pickle.

use crate::text::{Blob, Name};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use warpverbs_nixl::{Desc, RegDesc};

/// A descriptor of another agent's memory, for views of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteDesc {
    desc: Desc,
    agent: String,
}

/// A row of a list.
pub(crate) trait Row: Clone + PartialEq + Sized {
    /// The elements of a tuple of it, for texts.
    const FIELDS: &'static str;
    /// How many they are.
    const WIDTH: usize;

    /// A row without content.
    fn empty() -> Self;

    /// A row of a range alone.
    fn of(desc: Desc) -> Self;

    /// From a tuple of the right length.
    fn from_tuple(tuple: &Bound<'_, PyTuple>) -> PyResult<Self>;

    /// As a tuple.
    fn to_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>>;

    /// Appends its bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Takes one from the front of bytes that [`Self::encode`] made.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

/// A row of any object: it must be a tuple.
pub(crate) fn row<R: Row>(object: &Bound<'_, PyAny>) -> PyResult<R> {
    let Ok(tuple) = object.cast::<PyTuple>() else {
        let class = object.get_type().name()?;
        let why = format!("each descriptor must be a tuple {}, not {class}", R::FIELDS);
        return Err(PyTypeError::new_err(why));
    };
    let (expected, found) = (R::WIDTH, tuple.len());
    if expected != found {
        let fields = R::FIELDS;
        let why = format!(
            "each descriptor tuple must have exactly {expected} elements {fields}, not {found}"
        );
        return Err(PyValueError::new_err(why));
    }
    R::from_tuple(tuple)
}

fn desc(tuple: &Bound<'_, PyTuple>) -> PyResult<Desc> {
    let number = |place: usize| tuple.get_borrowed_item(place)?.extract::<u64>();
    Ok(Desc { addr: number(0)?, len: number(1)?, dev: number(2)? })
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*head))
}

fn encode_blob(blob: &[u8], out: &mut Vec<u8>) {
    out.extend((blob.len() as u64).to_le_bytes());
    out.extend(blob);
}

fn decode_blob(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(word(bytes)?).ok()?;
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head.to_vec())
}

impl Row for Desc {
    const FIELDS: &'static str = "(address, length, device)";
    const WIDTH: usize = 3;

    fn empty() -> Self {
        Self { addr: 0, len: 0, dev: 0 }
    }

    fn of(desc: Desc) -> Self {
        desc
    }

    fn from_tuple(tuple: &Bound<'_, PyTuple>) -> PyResult<Self> {
        desc(tuple)
    }

    fn to_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (self.addr, self.len, self.dev).into_pyobject(py)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        [self.addr, self.len, self.dev].iter().for_each(|word| out.extend(word.to_le_bytes()));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { addr: word(bytes)?, len: word(bytes)?, dev: word(bytes)? })
    }
}

impl Row for RegDesc {
    const FIELDS: &'static str = "(address, length, device, meta)";
    const WIDTH: usize = 4;

    fn empty() -> Self {
        Self::of(Desc::empty())
    }

    fn of(desc: Desc) -> Self {
        Self { desc, meta: Vec::new() }
    }

    fn from_tuple(tuple: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let Blob(meta) = tuple.get_borrowed_item(3)?.extract()?;
        Ok(Self { desc: desc(tuple)?, meta })
    }

    fn to_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Desc { addr, len, dev } = self.desc;
        (addr, len, dev, PyBytes::new(py, &self.meta)).into_pyobject(py)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.desc.encode(out);
        encode_blob(&self.meta, out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { desc: Desc::decode(bytes)?, meta: decode_blob(bytes)? })
    }
}

impl Row for RemoteDesc {
    const FIELDS: &'static str = "(address, length, device, agent)";
    const WIDTH: usize = 4;

    fn empty() -> Self {
        Self::of(Desc::empty())
    }

    fn of(desc: Desc) -> Self {
        Self { desc, agent: String::new() }
    }

    fn from_tuple(tuple: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let Name(agent) = tuple.get_borrowed_item(3)?.extract()?;
        Ok(Self { desc: desc(tuple)?, agent })
    }

    fn to_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Desc { addr, len, dev } = self.desc;
        (addr, len, dev, &self.agent).into_pyobject(py)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.desc.encode(out);
        encode_blob(self.agent.as_bytes(), out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let desc = Desc::decode(bytes)?;
        Some(Self { desc, agent: String::from_utf8(decode_blob(bytes)?).ok()? })
    }
}
