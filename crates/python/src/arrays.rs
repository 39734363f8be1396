//! Arrays of integers, read by their `__array_interface__`: numpy's, and whatever else has one.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ptr;
use warpverbs_nixl::MOST_DESCRIPTORS;

/// An array of integers, and the object that owns its memory.
pub(crate) struct Array<'a, 'py> {
    owner: &'a Bound<'py, PyAny>,
    data: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
    /// Bytes of an integer.
    item: usize,
    signed: bool,
    swapped: bool,
}

fn wrong<T>(why: impl Into<String>) -> PyResult<T> {
    Err(PyValueError::new_err(why.into()))
}

impl<'a, 'py> Array<'a, 'py> {
    /// An object's array, if it has one.
    ///
    /// # Errors
    /// It has one that is not of integers, or describes itself wrongly.
    pub(crate) fn of(owner: &'a Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = owner.py();
        let Some(found) = owner.getattr_opt(intern!(py, "__array_interface__"))? else {
            return Ok(None);
        };
        let interface = found.cast_into::<PyDict>().map_err(PyErr::from)?;
        let get = |name: &str| {
            let found = interface.get_item(name)?;
            found.ok_or_else(|| PyValueError::new_err(format!("the array has no {name:?}")))
        };
        let shape: Vec<usize> = get("shape")?.extract()?;
        let kind: String = get("typestr")?.extract()?;
        let (order, code, item) = match *kind.as_bytes() {
            [
                order @ (b'<' | b'>' | b'|'),
                code @ (b'i' | b'u'),
                size @ (b'1' | b'2' | b'4' | b'8'),
            ] => (order, code, usize::from(size - b'0')),
            _ => return wrong(format!("an array of integers is expected, not one of {kind:?}")),
        };
        if interface.get_item("mask")?.is_some_and(|mask| !mask.is_none()) {
            return wrong("an array without a mask is expected");
        }
        let (data, _): (usize, bool) = get("data")?.extract()?;
        let strides = match interface.get_item("strides")?.filter(|strides| !strides.is_none()) {
            Some(strides) => strides.extract()?,
            None => dense(&shape, item)?,
        };
        if strides.len() != shape.len() {
            return wrong("the array has as many strides as dimensions");
        }
        let elements = shape.iter().try_fold(1usize, |all, one| all.checked_mul(*one));
        if elements.is_none_or(|all| all > 5 * MOST_DESCRIPTORS) {
            return wrong(format!("{shape:?} is too large: at most {MOST_DESCRIPTORS} rows"));
        }
        let swapped = order == if cfg!(target_endian = "little") { b'>' } else { b'<' };
        Ok(Some(Self { owner, data, shape, strides, item, signed: code == b'i', swapped }))
    }

    /// Rows of `N` integers.
    ///
    /// # Errors
    /// It is no such matrix, or an integer is negative that has fewer than 64 bits.
    pub(crate) fn rows<const N: usize>(&self) -> PyResult<Vec<[u64; N]>> {
        let [count, columns] = self.shape[..] else {
            return wrong(format!("an Nx{N} array is expected, not one of shape {:?}", self.shape));
        };
        if columns != N {
            return wrong(format!("an Nx{N} array is expected, not one of {count}x{columns}"));
        }
        let mut out = vec![[0; N]; count];
        if let Some(all) = self.in_order::<8>() {
            for (value, bytes) in out.as_flattened_mut().iter_mut().zip(all) {
                *value = u64::from_ne_bytes(*bytes);
            }
            return Ok(out);
        }
        for (row, made) in out.iter_mut().enumerate() {
            for (column, value) in made.iter_mut().enumerate() {
                *value = self.at(&[row, column])?;
            }
        }
        Ok(out)
    }

    /// The integers of an array of one dimension.
    ///
    /// # Errors
    /// It has several, or an integer is negative that has fewer than 64 bits.
    pub(crate) fn values(&self) -> PyResult<Vec<u64>> {
        let [count] = self.shape[..] else {
            return wrong(format!(
                "an array of one dimension is expected, not of {:?}",
                self.shape
            ));
        };
        if self.swapped || self.strides != dense(&self.shape, self.item)? {
            return (0..count).map(|index| self.at(&[index])).collect();
        }
        // SAFETY: the interface of the array promises all its elements, which here lie in order, and the
        // owner is borrowed while this thread is attached to the interpreter.
        let bytes = unsafe { std::slice::from_raw_parts(self.first(), count * self.item) };
        let found: Vec<u64> = match self.item {
            1 => bytes.iter().map(|byte| u64::from(*byte)).collect(),
            2 => words(bytes, |word| u64::from(u16::from_le_bytes(word))),
            4 => words(bytes, |word| u64::from(u32::from_le_bytes(word))),
            _ => words(bytes, u64::from_le_bytes),
        };
        let top = 1u64 << (8 * self.item - 1);
        match self.signed && self.item < 8 && found.iter().any(|value| value & top != 0) {
            true => self.negative(),
            false => Ok(found),
        }
    }

    /// Where the elements begin, for arrays that have some or none.
    fn first(&self) -> *const u8 {
        if self.data == 0 { ptr::dangling() } else { self.data as *const u8 }
    }

    fn negative<T>(&self) -> PyResult<T> {
        wrong(format!("{}: a negative number", self.owner.get_type().name()?))
    }

    /// The same as indices, if all are, and lie as arrays of indices do: their usual types, in order.
    /// Otherwise [`Self::values`] gives them, or says what is wrong.
    pub(crate) fn indices(&self) -> Option<Vec<u32>> {
        // All are taken and those that do not fit looked for afterwards: several in one instruction.
        match (&self.shape[..], self.item) {
            ([_], 4) => {
                let found = self.in_order::<4>()?;
                let found: Vec<u32> =
                    found.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect();
                let all = found.iter().fold(0, |all, one| all | one);
                (!self.signed || all.cast_signed() >= 0).then_some(found)
            }
            ([_], 8) => {
                let found = self.in_order::<8>()?;
                let all = found.iter().fold(0, |all, bytes| all | u64::from_ne_bytes(*bytes));
                let narrow = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes) as u32;
                u32::try_from(all).is_ok().then(|| found.iter().map(narrow).collect())
            }
            _ => None,
        }
    }

    /// The elements, if they have so many bytes each, in the order of this machine, and no gaps between them.
    fn in_order<const ITEM: usize>(&self) -> Option<&[[u8; ITEM]]> {
        let dense = dense(&self.shape, self.item).ok()?;
        if self.item != ITEM || self.swapped || self.strides != dense {
            return None;
        }
        match self.shape.iter().product() {
            0 => Some(&[]),
            // SAFETY: the interface of the array promises all its elements, which here lie in order, of bytes,
            // which need no alignment; the owner is borrowed while this thread is attached to the interpreter.
            count => Some(unsafe { std::slice::from_raw_parts(self.data as *const _, count) }),
        }
    }

    /// Integers of 64 bits are taken bit by bit, as NIXL does: an address may be in either type.
    fn at(&self, place: &[usize]) -> PyResult<u64> {
        let pairs = place.iter().zip(&self.strides);
        let offset = pairs.fold(0isize, |all, (index, stride)| {
            all.wrapping_add(stride.wrapping_mul(index.cast_signed()))
        });
        let address = self.data.wrapping_add_signed(offset);
        let mut bytes = [0u8; 8];
        // SAFETY: the interface of the array promises `item` readable bytes at each element, and the
        // owner is borrowed while this thread is attached to the interpreter.
        let found = unsafe { std::slice::from_raw_parts(address as *const u8, self.item) };
        bytes[..self.item].copy_from_slice(found);
        if self.swapped {
            bytes[..self.item].reverse();
        }
        let value = u64::from_le_bytes(bytes);
        let negative = self.signed && self.item < 8 && value >> (8 * self.item - 1) != 0;
        match negative {
            true => self.negative(),
            false => Ok(value),
        }
    }
}

fn words<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> u64) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| value(*word)).collect()
}

/// Strides of an array in C's order.
fn dense(shape: &[usize], item: usize) -> PyResult<Vec<isize>> {
    let mut stride = item;
    let mut out = vec![0; shape.len()];
    for (made, length) in out.iter_mut().zip(shape).rev() {
        *made = stride.cast_signed();
        let Some(next) = stride.checked_mul((*length).max(1)) else {
            return wrong(format!("{shape:?} is too large"));
        };
        stride = next;
    }
    Ok(out)
}
