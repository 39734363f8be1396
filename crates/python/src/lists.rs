//! Lists of descriptors, as `nixl._bindings` has them. Their rows are in Rust; a call that works on a
//! list shares it, and a change copies it first if a call still does.

use crate::arrays::Array;
use crate::items::{RemoteDesc, Row, row};
use crate::{enums, errors};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_nixl::{Desc, Kind, List, MOST_DESCRIPTORS, RegDesc, RegList};

/// Rows that `print` shows.
const SHOWN: usize = 32;
/// Of pickles: a number that other bytes do not begin with, and of this layout.
const MAGIC: &[u8] = b"wvl1";

/// A kind of memory, and rows.
pub(crate) trait Rows: Clone + Sized {
    /// One of them.
    type Row: Row;

    /// Of these rows.
    fn of(kind: Kind, rows: Vec<Self::Row>) -> Self;

    /// The kind of memory that they describe.
    fn kind(&self) -> Kind;

    /// The rows.
    fn rows(&self) -> &Vec<Self::Row>;

    /// The rows, to be changed.
    fn rows_mut(&mut self) -> &mut Vec<Self::Row>;
}

/// Descriptors of memory of other agents.
#[derive(Clone, Debug)]
pub(crate) struct Remotes {
    kind: Kind,
    descs: Vec<RemoteDesc>,
}

macro_rules! rows {
    ($list:ident, $row:ident) => {
        impl Rows for $list {
            type Row = $row;

            fn of(kind: Kind, descs: Vec<$row>) -> Self {
                Self { kind, descs }
            }

            fn kind(&self) -> Kind {
                self.kind
            }

            fn rows(&self) -> &Vec<$row> {
                &self.descs
            }

            fn rows_mut(&mut self) -> &mut Vec<$row> {
                &mut self.descs
            }
        }
    };
}

rows!(List, Desc);
rows!(RegList, RegDesc);
rows!(Remotes, RemoteDesc);

/// A list that threads share.
pub(crate) struct Shared<L>(Mutex<Arc<L>>);

impl<L: Rows> Shared<L> {
    fn new(kind: Kind, rows: Vec<L::Row>) -> Self {
        Self(Mutex::new(Arc::new(L::of(kind, rows))))
    }

    /// The list as it is now.
    pub(crate) fn now(&self) -> Arc<L> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<L::Row>) -> PyResult<T>) -> PyResult<T> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut held).rows_mut())
    }

    fn read(kind: &Bound<'_, PyAny>, descs: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let kind = enums::kind_of(kind)?;
        let Some(descs) = descs else { return Ok(Self::new(kind, Vec::new())) };
        if let Ok(list) = descs.cast::<PyList>() {
            let rows = list.iter().map(|each| row(&each)).collect::<PyResult<_>>()?;
            return Ok(Self::new(kind, rows));
        }
        if let Ok(bytes) = descs.cast::<PyBytes>() {
            let rows = decode(bytes.as_bytes()).ok_or_else(|| {
                PyValueError::new_err("these bytes are no descriptors that this package pickled")
            })?;
            return Ok(Self::new(kind, rows));
        }
        if let Some(array) = Array::of(descs)? {
            let rows = array.rows::<3>()?.into_iter();
            let rows = rows.map(|[addr, len, dev]| L::Row::of(Desc { addr, len, dev })).collect();
            return Ok(Self::new(kind, rows));
        }
        let Ok(count) = descs.extract::<usize>() else {
            let class = descs.get_type().name()?;
            let why =
                format!("a list of tuples, an Nx3 array or a number is expected, not {class}");
            return Err(PyTypeError::new_err(why));
        };
        if count > MOST_DESCRIPTORS {
            let why = format!("{count} descriptors; at most {MOST_DESCRIPTORS}");
            return Err(PyValueError::new_err(why));
        }
        Ok(Self::new(kind, vec![L::Row::empty(); count]))
    }

    fn at(&self, index: isize) -> PyResult<L::Row> {
        let now = self.now();
        let found = usize::try_from(index).ok().and_then(|index| now.rows().get(index));
        found.cloned().ok_or_else(|| outside(index, now.rows().len()))
    }

    fn with(&self, index: isize, change: impl FnOnce(&mut Vec<L::Row>, usize)) -> PyResult<()> {
        self.change(|rows| {
            let place = usize::try_from(index).ok().filter(|place| *place < rows.len());
            let place = place.ok_or_else(|| outside(index, rows.len()))?;
            change(rows, place);
            Ok(())
        })
    }

    fn append(&self, desc: &Bound<'_, PyAny>) -> PyResult<()> {
        let made = row(desc)?;
        self.change(|rows| {
            if rows.len() == MOST_DESCRIPTORS {
                return Err(PyValueError::new_err(format!("at most {MOST_DESCRIPTORS}")));
            }
            rows.push(made);
            Ok(())
        })
    }

    fn index(&self, desc: &Bound<'_, PyAny>) -> PyResult<usize> {
        let wanted: L::Row = row(desc)?;
        let found = self.now().rows().iter().position(|row| *row == wanted);
        found.ok_or_else(|| errors::not_found(desc.py(), format!("the list has no {desc}")))
    }

    fn equals(&self, other: &Self) -> bool {
        // One lock after the other: two lists may be compared both ways round at once.
        let (one, other) = (self.now(), other.now());
        one.kind() == other.kind() && one.rows() == other.rows()
    }

    fn show(&self, py: Python<'_>) -> PyResult<String> {
        let now = self.now();
        let mut out = format!("{} descriptors of {}", now.rows().len(), now.kind());
        for row in now.rows().iter().take(SHOWN) {
            out += &format!("\n  {}", row.to_tuple(py)?);
        }
        if now.rows().len() > SHOWN {
            out += &format!("\n  and {} more", now.rows().len() - SHOWN);
        }
        Ok(out)
    }

    fn encode(&self) -> Vec<u8> {
        let now = self.now();
        let mut out = MAGIC.to_vec();
        now.rows().iter().for_each(|row| row.encode(&mut out));
        out
    }
}

fn outside(index: isize, count: usize) -> PyErr {
    PyIndexError::new_err(format!("index {index} of a list of {count} descriptors"))
}

fn decode<R: Row>(bytes: &[u8]) -> Option<Vec<R>> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let mut out = Vec::new();
    while !rest.is_empty() {
        if out.len() == MOST_DESCRIPTORS {
            return None;
        }
        out.push(R::decode(&mut rest)?);
    }
    Some(out)
}

/// How a list is pickled: as NIXL's class of that name, where that is this class, and otherwise as ours.
fn reduced<'py>(
    object: &Bound<'py, PyAny>,
    kind: Kind,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    let py = object.py();
    let class = object.get_type();
    let modules = py.import("sys")?.getattr("modules")?;
    let named = modules.call_method1("get", ("nixl._bindings",))?;
    let found = named.getattr_opt(class.name()?)?.is_some_and(|found| found.is(&class));
    let arguments = (kind.number(), PyBytes::new(py, bytes));
    if found {
        return (class, arguments).into_pyobject(py);
    }
    let ours = py.import("warpverbs.nixl._bindings")?.getattr("_list_of")?;
    let (kind, bytes) = arguments;
    (ours, (class.name()?, kind, bytes)).into_pyobject(py)
}

macro_rules! list_class {
    ($class:ident, $list:ident, $name:literal, $doc:literal, { $($more:tt)* }) => {
        #[doc = $doc]
        #[pyclass(frozen, weakref, name = $name, module = "nixl._bindings")]
        pub(crate) struct $class {
            /// The rows.
            pub(crate) list: Shared<$list>,
            /// Objects that must live as long as memory of this list is registered.
            pub(crate) owners: Mutex<Vec<Py<PyAny>>>,
        }

        impl $class {
            fn over(list: Shared<$list>) -> Self {
                Self { list, owners: Mutex::new(Vec::new()) }
            }
        }

        #[pymethods]
        #[allow(non_snake_case)]
        impl $class {
            #[new]
            #[pyo3(signature = (r#type, descs=None, init_size=None))]
            fn new(
                r#type: &Bound<'_, PyAny>,
                descs: Option<&Bound<'_, PyAny>>,
                init_size: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Self> {
                if descs.is_some() && init_size.is_some() {
                    return Err(PyTypeError::new_err("descs or init_size, not both"));
                }
                Ok(Self::over(Shared::read(r#type, descs.or(init_size))?))
            }

            /// The kind of memory.
            fn getType(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                enums::kind(py, self.list.now().kind())
            }

            /// How many descriptors it has.
            fn descCount(&self) -> usize {
                self.list.now().rows().len()
            }

            /// Whether it has none.
            fn isEmpty(&self) -> bool {
                self.list.now().rows().is_empty()
            }

            fn __eq__(&self, other: &Bound<'_, PyAny>) -> Option<bool> {
                other.cast::<Self>().ok().map(|other| self.list.equals(&other.get().list))
            }

            fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyTuple>> {
                self.list.at(index)?.to_tuple(py)
            }

            fn __setitem__(&self, index: isize, desc: &Bound<'_, PyAny>) -> PyResult<()> {
                let made = row(desc)?;
                self.list.with(index, |rows, place| rows[place] = made)
            }

            /// Appends a descriptor, a tuple.
            fn addDesc(&self, desc: &Bound<'_, PyAny>) -> PyResult<()> {
                self.list.append(desc)
            }

            /// Appends a descriptor, a tuple.
            fn append(&self, desc: &Bound<'_, PyAny>) -> PyResult<()> {
                self.list.append(desc)
            }

            /// Removes the descriptor of an index.
            fn remDesc(&self, index: isize) -> PyResult<()> {
                self.list.with(index, |rows, place| { rows.remove(place); })
            }

            /// Removes all.
            fn clear(&self) -> PyResult<()> {
                self.list.change(|rows| Ok(rows.clear()))
            }

            /// Shows the first descriptors on the standard output.
            fn print(&self, py: Python<'_>) -> PyResult<()> {
                let print = py.import("builtins")?.getattr("print")?;
                print.call1((self.list.show(py)?,)).map(drop)
            }

            fn __repr__(&self) -> String {
                let now = self.list.now();
                format!("{}({}, {} descriptors)", $name, now.kind(), now.rows().len())
            }

            fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
                let list = &this.get().list;
                reduced(this.as_any(), list.now().kind(), &list.encode())
            }

            /// Keeps an object for as long as memory of this list is registered, or the list lives.
            fn _keep(&self, owner: Py<PyAny>) {
                self.owners.lock().unwrap_or_else(PoisonError::into_inner).push(owner);
            }

            $($more)*
        }
    };
}

list_class!(XferList, List, "nixlXferDList", "Ranges of memory to be moved.", {
    /// The index of a descriptor; raises `nixlNotFoundError` where it is not in the list.
    fn index(&self, desc: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.list.index(desc)
    }
});

list_class!(RegionList, RegList, "nixlRegDList", "Ranges of memory to be registered.", {
    /// The index of a descriptor; raises `nixlNotFoundError` where it is not in the list.
    fn index(&self, desc: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.list.index(desc)
    }

    /// The same ranges, to be moved.
    fn trim(&self) -> XferList {
        let list = self.list.now().trim();
        XferList::over(Shared::new(list.kind, list.descs))
    }
});

list_class!(RemoteList, Remotes, "nixlRemoteDList", "Ranges of memory of other agents.", {});

/// Puts the classes into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<XferList>()?;
    module.add_class::<RegionList>()?;
    module.add_class::<RemoteList>()
}
