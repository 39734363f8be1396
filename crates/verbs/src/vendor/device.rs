//! A device, and the library that makes its queues or tells of them.

use super::error::VendorError;
use super::library::VendorLibrary;
use crate::sys::LoadFailure;
use crate::{Context, LoadError, explain};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Functions of a vendor's library.
pub(crate) trait VendorApi: Sized + Sync + 'static {
    const LIBRARY: VendorLibrary;

    /// # Safety
    /// The file is a library whose initialisers may run, and whose functions of these names are the vendor's.
    unsafe fn load(file: &str) -> Result<Self, LoadFailure>;

    /// Where the functions are kept once they are loaded.
    fn loaded() -> &'static Mutex<Option<&'static Self>>;
}

/// An open device of a vendor's, and the library that makes its queues. Cloning shares it.
pub struct VendorDevice<A: 'static> {
    context: Context,
    api: &'static A,
}

impl<A> Clone for VendorDevice<A> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), api: self.api }
    }
}

impl<A> fmt::Debug for VendorDevice<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VendorDevice({})", self.context.device().name())
    }
}

/// The first of `files` that has the functions.
///
/// # Safety
/// They are libraries as [`VendorApi::load`] wants them.
unsafe fn first_of<A: VendorApi>(files: &[String]) -> Result<A, VendorError> {
    let mut tried = Vec::new();
    for file in files {
        // SAFETY: as the caller says.
        match unsafe { A::load(file) } {
            Ok(api) => {
                if !tried.is_empty() {
                    tracing::info!(file, ?tried, "queues by a library beside libibverbs' driver");
                }
                return Ok(api);
            }
            Err(failure) => tried.push(explain(file, 0, failure)),
        }
    }
    let missing = tried.iter().find_map(|failure| match failure {
        LoadError::TooOld { symbol, .. } => Some(*symbol),
        _ => None,
    });
    let library = const { &A::LIBRARY };
    Err(VendorError::NoLibrary { library, expected: missing.unwrap_or(library.first), tried })
}

/// The library, loaded once.
fn library<A: VendorApi>() -> Result<&'static A, VendorError> {
    let mut loaded = A::loaded().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(api) = *loaded {
        return Ok(api);
    }
    // SAFETY: the driver itself, the library of this name, or the one its user vouches for.
    let api = unsafe { first_of::<A>(&A::LIBRARY.candidates()) }?;
    let api: &'static A = Box::leak(Box::new(api));
    *loaded = Some(api);
    Ok(api)
}

#[allow(private_bounds, reason = "the functions are those of two libraries")]
impl<A: VendorApi> VendorDevice<A> {
    /// The device of `context`, if it is one of the vendor's and there is its library.
    ///
    /// # Errors
    /// The device is another's, or no library has the functions.
    pub fn of(context: &Context) -> Result<Self, VendorError> {
        let (vendor, library_of) = (context.raw_attr()?.orig_attr.vendor_id, const { &A::LIBRARY });
        if vendor != library_of.vendor {
            let device = context.device().name().to_owned();
            return Err(VendorError::NotOfVendor { library: library_of, device, vendor });
        }
        Ok(Self { context: context.clone(), api: library()? })
    }
}

impl<A> VendorDevice<A> {
    /// The open device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn api(&self) -> &'static A {
        self.api
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bnxt_dv::sys::BnxtApi;
    use std::process::Command;

    #[test]
    fn missing_libraries_are_named_in_their_order() {
        let files = ["libwv-nowhere.so", "libwv-neither.so"].map(str::to_owned);
        // SAFETY: nothing is loaded.
        let error = unsafe { first_of::<BnxtApi>(&files) }.err().unwrap();
        let expected = files.iter().map(|file| LoadError::NotFound { file: file.clone() });
        let VendorError::NoLibrary { tried, expected: symbol, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((tried, symbol), (expected.collect::<Vec<_>>(), warpverbs_bnxt::dv::NEEDED[0]));
    }

    #[test]
    fn another_library_is_refused_by_the_function_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        // All functions but the last, as an older package of the vendor's might have them.
        let [needed @ .., last] = warpverbs_bnxt::dv::NEEDED;
        let source: String =
            needed.iter().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("old.c"), source).unwrap();
        let (old, c) = (path("libbnxt_re-rdmav59.so"), path("old.c"));
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &old, &c]).status();
        if !built.is_ok_and(|status| status.success()) {
            return crate::testing::skip("needs a C compiler");
        }
        for (file, missing) in [("libc.so.6", warpverbs_bnxt::dv::NEEDED[0]), (&old, last)] {
            // SAFETY: none of its functions is called.
            let error = unsafe { first_of::<BnxtApi>(&[file.to_owned()]) }.unwrap_err();
            let VendorError::NoLibrary { tried, expected, .. } = &error else { panic!("{error}") };
            assert_eq!(*expected, missing);
            assert!(
                matches!(&tried[..], [LoadError::TooOld { symbol, .. }] if *symbol == missing),
                "{error}"
            );
            assert!(error.to_string().contains(file), "{error}");
        }
    }
}
