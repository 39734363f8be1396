//! Parameters of backends, and iterators over them.

use crate::border::{Out, Text};
use crate::call::{Code, call};
use crate::handle::{Handle, Object};
use crate::lock;
use crate::strings::terminated;
use std::ffi::{CString, c_char};
use std::sync::Mutex;

/// Parameters by name.
#[derive(Default)]
pub(crate) struct Params(Mutex<warpverbs_nixl::Params>);

impl Object for Params {
    const NAME: &'static str = "nixl_capi_params_t";
}

impl Params {
    pub(crate) fn new(params: warpverbs_nixl::Params) -> Self {
        Self(Mutex::new(params))
    }

    /// A copy of them as they are now.
    pub(crate) fn copy(&self) -> warpverbs_nixl::Params {
        lock(&self.0).clone()
    }
}

/// The parameters at the time when the iterator was made; their texts stay as long as it does.
struct Iter {
    pairs: Vec<(CString, CString)>,
    next: Mutex<usize>,
}

impl Object for Iter {
    const NAME: &'static str = "nixl_capi_param_iter_t";
}

/// Without parameters.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_params(params: Out<Handle<Params>>) -> Code {
    call("nixl_capi_create_params", || {
        let params = params.place("params")?;
        params.set(Handle::new(Params::default()));
        Ok(())
    })
}

/// Frees parameters.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_params(params: Handle<Params>) -> Code {
    call("nixl_capi_destroy_params", || params.take().map(drop))
}

/// Sets a parameter.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_params_add(params: Handle<Params>, key: Text, value: Text) -> Code {
    call("nixl_capi_params_add", || {
        let params = params.get()?;
        let (key, value) = (key.get("key")?.to_owned(), value.get("value")?.to_owned());
        lock(&params.0).insert(key, value);
        Ok(())
    })
}

/// Whether there are none.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_params_is_empty(params: Handle<Params>, is_empty: Out<bool>) -> Code {
    call("nixl_capi_params_is_empty", || {
        let (params, is_empty) = (params.get()?, is_empty.place("is_empty")?);
        is_empty.set(lock(&params.0).is_empty());
        Ok(())
    })
}

/// An iterator, in the order of the names.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_params_create_iterator(
    params: Handle<Params>,
    iter: Out<Handle<Iter>>,
) -> Code {
    call("nixl_capi_params_create_iterator", || {
        let (params, iter) = (params.get()?, iter.place("iter")?);
        let pairs = params.copy();
        let pairs = pairs.iter().map(|(key, value)| (terminated(key), terminated(value))).collect();
        iter.set(Handle::new(Iter { pairs, next: Mutex::new(0) }));
        Ok(())
    })
}

/// The next parameter, and whether there is one more. At the end the places for texts keep what they have.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_params_iterator_next(
    iter: Handle<Iter>,
    key: Out<*const c_char>,
    value: Out<*const c_char>,
    has_next: Out<bool>,
) -> Code {
    call("nixl_capi_params_iterator_next", || {
        let iter = iter.get()?;
        let (key, value) = (key.place("key")?, value.place("value")?);
        let has_next = has_next.place("has_next")?;
        let mut next = lock(&iter.next);
        if let Some((name, text)) = iter.pairs.get(*next) {
            key.set(name.as_ptr());
            value.set(text.as_ptr());
            *next += 1;
        }
        has_next.set(*next < iter.pairs.len());
        Ok(())
    })
}

/// Frees an iterator, and the texts that it gave.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_params_destroy_iterator(iter: Handle<Iter>) -> Code {
    call("nixl_capi_params_destroy_iterator", || iter.take().map(drop))
}
