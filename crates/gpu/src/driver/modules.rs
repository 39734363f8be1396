//! Kernels loaded into a context, eagerly and for good.
//!
//! Loading waits for kernels that run, so all kernels of an image are loaded at once and early.
//! Modules are never unloaded, since that waits too; an image is `'static`, so there are few.

use super::cache::Cache;
use super::calls::{Driver, Functions};
use super::lock::lock;
use super::owned::is_busy;
use crate::{Entry, GpuError, Image};
use std::collections::HashMap;
use std::sync::Mutex;

/// Refuses a kernel whose parameters, as declared, are not the compiled ones, whose sizes are given in bytes: a launch
/// reads each from memory.
pub(crate) fn check_parameters(entry: &Entry, compiled: &[usize]) -> Result<(), GpuError> {
    let refused = |what, declared, compiled| {
        let (declared, compiled) = (declared as u64, compiled as u64);
        Err(GpuError::BadEntry { kernel: entry.name, what, declared, compiled })
    };
    if compiled.len() != entry.params.len() {
        return refused("parameters", entry.params.len(), compiled.len());
    }
    let mut pairs = entry.params.iter().zip(compiled);
    match pairs.find(|(declared, compiled)| declared != compiled) {
        Some((&declared, &compiled)) => refused("bytes of a parameter", declared, compiled),
        None => Ok(()),
    }
}

/// The images of one context, by address.
#[derive(Default)]
pub(crate) struct Modules {
    loaded: Mutex<HashMap<usize, &'static Functions>>,
}

impl Modules {
    /// Every function of `image`, compiled and loaded if this is the first time.
    pub(crate) fn get(
        &self,
        driver: &'static dyn Driver,
        image: &'static Image,
        cache: &Cache,
    ) -> Result<&'static Functions, GpuError> {
        let mut loaded = lock(&self.loaded);
        let key = std::ptr::from_ref(image) as usize;
        if let Some(functions) = loaded.get(&key) {
            return Ok(functions);
        }
        if is_busy() {
            tracing::warn!(image = image.name, "loading while a kernel runs; this may wait for it");
        }
        let (code, cached) = driver.compile(image, cache)?;
        let load = |code: &[u8]| {
            let _entered = driver.entered()?;
            driver.load(image, code)
        };
        let functions = load(&code).or_else(|error| {
            if !cached {
                return Err(error);
            }
            // Nothing says how the cached file came to be; the compiler's word is better.
            tracing::warn!(%error, image = image.name, "cached kernel refused, compiling");
            load(&driver.compile(image, &Cache::Off)?.0)
        })?;
        tracing::debug!(image = image.name, cached, device = driver.label(), "loaded");
        let functions: &'static Functions = Box::leak(Box::new(functions));
        loaded.insert(key, functions);
        Ok(functions)
    }
}
