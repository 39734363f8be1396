//! Finding the vendor's library.

use super::error::BnxtError;
use super::sys::BnxtApi;
use crate::{Context, LoadError, explain};
use std::fmt;
use std::fs;
use std::sync::{Mutex, PoisonError};

/// Names the libbnxt_re to load instead of those that are looked for: a path or a file name. It must be the
/// one that libibverbs uses as its driver, or go with it.
pub const LIBBNXT_RE_ENV: &str = "WARPVERBS_LIBBNXT_RE";

/// Where the vendor's package installs it.
const LIBRARY: &str = "libbnxt_re.so";
/// How the files of the driver begin, whichever version of libibverbs they are for.
const DRIVER: &str = "libbnxt_re";
/// PCI number of the vendor, [`DeviceAttr::vendor_id`](crate::DeviceAttr::vendor_id) of its devices.
pub const BROADCOM: u32 = 0x14e4;

/// An open bnxt_re device and the library that makes its queues. Cloning shares it.
#[derive(Clone)]
pub struct BnxtDv {
    context: Context,
    api: &'static BnxtApi,
}

impl fmt::Debug for BnxtDv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BnxtDv({})", self.context.device().name())
    }
}

/// The files to try: the one that the environment names; otherwise the driver that libibverbs has loaded,
/// then the vendor's by its name.
fn candidates() -> Vec<String> {
    if let Ok(file) = std::env::var(LIBBNXT_RE_ENV) {
        return vec![file];
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut files: Vec<String> = loaded(&maps).into_iter().collect();
    files.push(LIBRARY.to_owned());
    files
}

/// The driver's file among those that are mapped.
fn loaded(maps: &str) -> Option<String> {
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_driver = |file: &&str| {
        file.rsplit('/').next().is_some_and(|name| name.starts_with(DRIVER))
            && !file.ends_with(" (deleted)")
    };
    files.into_iter().find(is_driver).map(str::to_owned)
}

/// The first of `files` that has the functions.
///
/// # Safety
/// They are libraries whose initialisers may run, and whose functions of these names are the vendor's.
unsafe fn first_of(files: &[String]) -> Result<BnxtApi, BnxtError> {
    let mut tried = Vec::new();
    for file in files {
        // SAFETY: as the caller says.
        match unsafe { BnxtApi::load(file) } {
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
    Err(BnxtError::NoLibrary { expected: missing.unwrap_or("bnxt_re_dv_umem_reg"), tried })
}

/// The library, loaded once.
fn library() -> Result<&'static BnxtApi, BnxtError> {
    static LOADED: Mutex<Option<&'static BnxtApi>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(api) = *loaded {
        return Ok(api);
    }
    // SAFETY: the driver itself, the library of this name, or the one its user vouches for.
    let api = unsafe { first_of(&candidates()) }?;
    let api: &'static BnxtApi = Box::leak(Box::new(api));
    *loaded = Some(api);
    Ok(api)
}

impl BnxtDv {
    /// The device of `context`, if it is one of Broadcom's and there is the vendor's library.
    ///
    /// # Errors
    /// The device is another's, or no library has the functions.
    pub fn of(context: &Context) -> Result<Self, BnxtError> {
        let vendor = context.raw_attr()?.orig_attr.vendor_id;
        if vendor != BROADCOM {
            return Err(BnxtError::NotBnxt { device: context.device().name().to_owned(), vendor });
        }
        Ok(Self { context: context.clone(), api: library()? })
    }

    /// The open device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn api(&self) -> &'static BnxtApi {
        self.api
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const MAPS: &str = "\
7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44
7f02-7f03 r--p 00000000 08:01 2 /usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so
7f04-7f05 rw-p 00000000 00:00 0 [heap]
";

    #[test]
    fn the_driver_that_is_loaded_is_found() {
        let expected = "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so";
        assert_eq!(loaded(MAPS).as_deref(), Some(expected));
        assert_eq!(loaded(&MAPS.replace("libbnxt_re-", "libmlx5-")), None);
    }

    #[test]
    fn missing_libraries_are_named_in_their_order() {
        let files = ["libwv-nowhere.so", "libwv-neither.so"].map(str::to_owned);
        // SAFETY: nothing is loaded.
        let error = unsafe { first_of(&files) }.unwrap_err();
        let expected = files.iter().map(|file| LoadError::NotFound { file: file.clone() });
        let BnxtError::NoLibrary { tried, expected: symbol } = error else { panic!("{error}") };
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
            let error = unsafe { first_of(&[file.to_owned()]) }.unwrap_err();
            let BnxtError::NoLibrary { tried, expected } = &error else { panic!("{error}") };
            assert_eq!(*expected, missing);
            assert!(
                matches!(&tried[..], [LoadError::TooOld { symbol, .. }] if *symbol == missing),
                "{error}"
            );
            assert!(error.to_string().contains(file), "{error}");
        }
    }
}
