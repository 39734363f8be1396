//! Libraries that are loaded at run time, and tables of their functions.

use crate::GpuError;
use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int};

/// A table of a C library's functions, which return an `int` that is 0 for success: `Table`, loaded by
/// `Table::load`, and a method of `Api` for each function. `Api` has a field `table` and a method `check`, which
/// makes an error of a function's name and its result.
macro_rules! table {
    (
        $what:expr;
        required { $(fn $name:ident($($arg:ident: $ty:ty),*);)* }
        optional { $(fn $opt:ident($($oarg:ident: $oty:ty),*);)* }
    ) => {
        #[allow(non_snake_case)]
        struct Table {
            $($name: unsafe extern "C" fn($($ty),*) -> ::std::ffi::c_int,)*
            $($opt: Option<unsafe extern "C" fn($($oty),*) -> ::std::ffi::c_int>,)*
        }

        impl Table {
            fn load(library: &::libloading::Library) -> Result<Self, $crate::GpuError> {
                use $crate::library::symbol;
                Ok(Self {
                    // SAFETY: the symbol is the library's function of this name, whose signature is the one
                    // declared where the table is made; a C enum is passed as an `int`.
                    $($name: unsafe { symbol(library, $what, stringify!($name)) }?,)*
                    // SAFETY: as above.
                    $($opt: unsafe { symbol(library, $what, stringify!($opt)) }.ok(),)*
                })
            }
        }

        /// Every function fails with [`GpuError::Driver`], naming itself.
        ///
        /// # Safety
        /// As for the library's function of the same name.
        #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]
        impl Api {
            $(pub(crate) unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), $crate::GpuError> {
                // SAFETY: forwarded to the caller.
                let code = unsafe { (self.table.$name)($($arg),*) };
                self.check(stringify!($name), code)
            })*
            $(pub(crate) unsafe fn $opt(&self, $($oarg: $oty),*) -> Result<(), $crate::GpuError> {
                let Some(function) = self.table.$opt else {
                    let reason = concat!("it has no ", stringify!($opt)).to_owned();
                    return Err($crate::GpuError::Library { library: $what, reason });
                };
                // SAFETY: forwarded to the caller.
                let code = unsafe { function($($oarg),*) };
                self.check(stringify!($opt), code)
            })*
        }
    };
}
pub(crate) use table;

/// Loads the first of `names` that there is. If none is, the error names the first; if one is there
/// but cannot be loaded, it tells what the loader said of that.
pub(crate) fn open_library(what: &'static str, names: &[&str]) -> Result<Library, GpuError> {
    open_first(what, names).map(|(library, _)| library)
}

/// As [`open_library`], and tells which of the names it was.
pub(crate) fn open_first<'a>(
    what: &'static str,
    names: &[&'a str],
) -> Result<(Library, &'a str), GpuError> {
    let mut reason = None;
    for name in names {
        // SAFETY: the vendor's library may be loaded and initialised from any thread.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok((library, name)),
            Err(error) => {
                // The loader's own words are the source of `libloading`'s error.
                let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                // The same words about another file mean that something `name` needs is missing.
                let absent = words.starts_with(&format!("{name}:"))
                    && words.ends_with("No such file or directory");
                reason = reason.or((!absent).then_some(words));
            }
        }
    }
    Err(match reason {
        Some(reason) => GpuError::Library { library: what, reason },
        None => GpuError::NotFound {
            library: what,
            file: names.first().copied().unwrap_or_default().to_owned(),
        },
    })
}

/// The function called `name` in `library`; `what` names the library in an error.
///
/// # Safety
/// `F` must be the type of the function called `name`, and must not be used after `library` is
/// dropped.
pub(crate) unsafe fn symbol<F: Copy>(
    library: &Library,
    what: &'static str,
    name: &str,
) -> Result<F, GpuError> {
    // SAFETY: the type is the caller's obligation.
    unsafe { library.get::<F>(name) }
        .map(|found| *found)
        .map_err(|error| GpuError::Library { library: what, reason: error.to_string() })
}

/// A short text that `get` writes to a buffer of the given length.
pub(crate) fn text(
    get: impl FnOnce(*mut c_char, c_int) -> Result<(), GpuError>,
) -> Result<String, GpuError> {
    let mut out = [0 as c_char; 256];
    get(out.as_mut_ptr(), out.len() as c_int - 1)?;
    // SAFETY: the array outlives the borrow, and its last byte is NUL whatever was written.
    Ok(unsafe { CStr::from_ptr(out.as_ptr()) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let error = open_library("wonder", &["libwv-nowhere.so.1", "libwv-nowhere.so"]);
        let text = error.err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(text, "wonder is not installed (libwv-nowhere.so.1 not found)");
    }

    #[test]
    fn a_library_that_does_not_load_is_an_error_with_the_loaders_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libwv-text.so");
        std::fs::write(&path, "no library").unwrap();
        let error = open_library("wonder", &["libwv-nowhere.so.1", path.to_str().unwrap()]);
        let text = error.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(text.starts_with("wonder cannot be used: "), "{text}");
        assert!(text.contains("libwv-text.so"), "{text}");
    }

    #[test]
    fn missing_symbol_is_an_error() {
        let library = open_library("libc", &["libc.so.6"]).unwrap();
        // SAFETY: the name does not exist, so nothing is ever called.
        let found = unsafe { symbol::<unsafe extern "C" fn()>(&library, "libc", "wv_nothing") };
        assert!(matches!(found, Err(GpuError::Library { .. })));
    }
}
