//! Lists of names and of kinds of memory, and what kinds are called.

use crate::border::Out;
use crate::call::{Code, Failure, call};
use crate::handle::{Handle, Object};
use std::ffi::{CStr, CString, c_char, c_uint};
use warpverbs_nixl::Kind;

/// Names that the interface gives one by one.
pub(crate) struct Strings(Vec<CString>);

impl Object for Strings {
    const NAME: &'static str = "nixl_capi_string_list_t";
}

impl Strings {
    pub(crate) fn new<'a>(all: impl IntoIterator<Item = &'a str>) -> Self {
        Self(all.into_iter().map(terminated).collect())
    }
}

/// The text as C has it. A zero byte, which no text of C can have in it, is written as an escape.
pub(crate) fn terminated(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// Kinds of memory that a plugin or a backend takes.
pub(crate) struct Kinds(pub(crate) &'static [Kind]);

impl Object for Kinds {
    const NAME: &'static str = "nixl_capi_mem_list_t";
}

/// The number of the kind that is none.
const UNKNOWN: c_uint = 5;

/// A kind by its number; `None` is the unknown one.
pub(crate) fn kind_of(number: c_uint) -> Result<Option<Kind>, Failure> {
    match Kind::of_number(number) {
        None if number != UNKNOWN => {
            let why = format!("the kind of memory is {number}, expected at most {UNKNOWN}");
            Err(Failure::invalid(why))
        }
        kind => Ok(kind),
    }
}

/// The number of a kind.
pub(crate) fn number_of(kind: Option<Kind>) -> c_uint {
    kind.map_or(UNKNOWN, Kind::number)
}

/// The interface's name of a kind.
pub(crate) fn name_of(kind: Option<Kind>) -> &'static CStr {
    match kind {
        Some(Kind::Dram) => c"DRAM",
        Some(Kind::Vram) => c"VRAM",
        Some(Kind::Block) => c"BLOCK",
        Some(Kind::Object) => c"OBJECT",
        Some(Kind::File) => c"FILE",
        None => c"UNKNOWN",
    }
}

/// The entry of a list, which must have it.
pub(crate) fn entry<'a, T>(all: &'a [T], index: usize, what: &str) -> Result<&'a T, Failure> {
    all.get(index).ok_or_else(|| {
        Failure::invalid(format!("{what} {index}, expected less than their number, {}", all.len()))
    })
}

/// Frees a list of names.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_string_list(list: Handle<Strings>) -> Code {
    call("nixl_capi_destroy_string_list", || list.take().map(drop))
}

/// How many names.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_string_list_size(list: Handle<Strings>, size: Out<usize>) -> Code {
    call("nixl_capi_string_list_size", || {
        let (list, size) = (list.get()?, size.place("size")?);
        size.set(list.0.len());
        Ok(())
    })
}

/// A name, which stays as long as the list.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_string_list_get(
    list: Handle<Strings>,
    index: usize,
    str: Out<*const c_char>,
) -> Code {
    call("nixl_capi_string_list_get", || {
        let (list, str) = (list.get()?, str.place("str")?);
        str.set(entry(&list.0, index, "name")?.as_ptr());
        Ok(())
    })
}

/// Frees a list of kinds.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_mem_list(list: Handle<Kinds>) -> Code {
    call("nixl_capi_destroy_mem_list", || list.take().map(drop))
}

/// Whether there are no kinds.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_mem_list_is_empty(list: Handle<Kinds>, is_empty: Out<bool>) -> Code {
    call("nixl_capi_mem_list_is_empty", || {
        let (list, is_empty) = (list.get()?, is_empty.place("is_empty")?);
        is_empty.set(list.0.is_empty());
        Ok(())
    })
}

/// How many kinds.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_mem_list_size(list: Handle<Kinds>, size: Out<usize>) -> Code {
    call("nixl_capi_mem_list_size", || {
        let (list, size) = (list.get()?, size.place("size")?);
        size.set(list.0.len());
        Ok(())
    })
}

/// A kind.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_mem_list_get(
    list: Handle<Kinds>,
    index: usize,
    mem_type: Out<c_uint>,
) -> Code {
    call("nixl_capi_mem_list_get", || {
        let (list, mem_type) = (list.get()?, mem_type.place("mem_type")?);
        mem_type.set(number_of(Some(*entry(list.0, index, "kind")?)));
        Ok(())
    })
}

/// The name of a kind, which stays.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_mem_type_to_string(mem_type: c_uint, str: Out<*const c_char>) -> Code {
    call("nixl_capi_mem_type_to_string", || {
        let str = str.place("str")?;
        str.set(name_of(kind_of(mem_type)?).as_ptr());
        Ok(())
    })
}
