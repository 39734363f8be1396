//! The library, loaded once.

use super::load_error::explain;
use super::{Device, LoadError, Selection, VerbsError, advice, device};
use crate::sys::Api;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Names the library to load instead of the one the loader finds: a path or a file name.
pub const LIBRARY_ENV: &str = "WARPVERBS_LIBIBVERBS";

const LIBRARY: &str = "libibverbs.so.1";

/// A loaded libibverbs. It stays loaded until the process ends.
#[derive(Clone, Copy)]
pub struct Verbs {
    library: &'static Library,
}

struct Library {
    api: Api,
    file: String,
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verbs({})", self.library.file)
    }
}

impl Verbs {
    /// Loads libibverbs, or the library that [`LIBRARY_ENV`] names. Cheap when done before.
    pub fn load() -> Result<Self, LoadError> {
        let file = std::env::var(LIBRARY_ENV).unwrap_or_else(|_| LIBRARY.to_owned());
        // SAFETY: the library of this name, or the one its user vouches for.
        unsafe { Self::load_from(&file) }
    }

    /// Loads `file`, a path or a name for the loader's search.
    ///
    /// # Safety
    /// It must be libibverbs, or behave as it does.
    pub unsafe fn load_from(file: &str) -> Result<Self, LoadError> {
        static LOADED: Mutex<BTreeMap<String, &'static Library>> = Mutex::new(BTreeMap::new());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = loaded.get(file) {
            return Ok(Self { library });
        }
        // SAFETY: forwarded to the caller.
        let api = unsafe { Api::load(file) }.map_err(|failure| explain(file, 15, failure))?;
        let library = Box::leak(Box::new(Library { api, file: file.to_owned() }));
        loaded.insert(file.to_owned(), library);
        Ok(Self { library })
    }

    /// Its functions.
    pub fn api(self) -> &'static Api {
        &self.library.api
    }

    /// The library that was loaded: a path or a file name.
    pub fn file(self) -> &'static str {
        &self.library.file
    }

    /// All devices that libibverbs finds and has a driver for, whatever is selected.
    pub fn all_devices(self) -> Result<Vec<Device>, VerbsError> {
        device::list(self)
    }

    /// The devices that `WARPVERBS_NICS` selects, in its order; all without it.
    pub fn devices(self) -> Result<Vec<Device>, VerbsError> {
        Ok(Selection::from_env()?.apply(self.all_devices()?, Device::name)?)
    }

    /// Why [`Self::all_devices`] is empty, and what to do about it, as far as this machine shows.
    pub fn why_no_device(self) -> String {
        advice::on_no_devices(&advice::Facts::of_this_process())
    }

    /// The selected device of this name.
    pub fn device(self, name: &str) -> Result<Device, VerbsError> {
        let devices = self.devices()?;
        let names: Vec<_> = devices.iter().map(|d| d.name().to_owned()).collect();
        devices.into_iter().find(|d| d.name() == name).ok_or_else(|| VerbsError::NoDevice {
            asked: name.to_owned(),
            found: match names.len() {
                0 => self.why_no_device(),
                _ => format!("there are {}", names.join(", ")),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_comes_with_the_packages_that_bring_it() {
        // SAFETY: nothing is loaded.
        let error = unsafe { Verbs::load_from("libwv-nowhere.so.1") }.unwrap_err();
        assert_eq!(error, LoadError::NotFound { file: "libwv-nowhere.so.1".into() });
        assert!(error.to_string().contains("ibverbs-providers"), "{error}");
    }

    #[test]
    fn another_library_is_refused_by_the_function_it_lacks() {
        // SAFETY: libc is loaded already, and none of its functions is called.
        let error = unsafe { Verbs::load_from("libc.so.6") }.unwrap_err();
        let LoadError::TooOld { symbol, version, .. } = error else { panic!("{error}") };
        assert_eq!((symbol, version), ("ibv_get_device_list", "IBVERBS_1.1"));
    }
}
