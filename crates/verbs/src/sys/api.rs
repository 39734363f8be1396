//! Functions of libraries, found at run time by name and version; and those of libibverbs.

use super::bindings::*;
use std::error::Error;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

/// Why a library cannot be used.
#[derive(Debug)]
pub enum LoadFailure {
    /// The loader's words.
    Library(String),
    /// A function that is needed is not there, in this version.
    Symbol(&'static str, &'static str),
}

/// Declares a structure of functions that are found at run time by name and version. With `checked`,
/// a signature that differs from the generated declaration does not compile.
macro_rules! functions {
    (checked $(#[$doc:meta])* $api:ident
        required { $($version:literal fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)* }
        optional { $($oversion:literal fn $opt:ident($($oarg:ident: $oty:ty),*) $(-> $oret:ty)?;)* }
    ) => {
        // The constants are never used, so nothing is linked.
        $(const _: unsafe extern "C" fn($($ty),*) $(-> $ret)? = super::bindings::$name;)*
        $(const _: unsafe extern "C" fn($($oty),*) $(-> $oret)? = super::bindings::$opt;)*

        $crate::sys::functions! { $(#[$doc])* $api
            required { $($version fn $name($($arg: $ty),*) $(-> $ret)?;)* }
            optional { $($oversion fn $opt($($oarg: $oty),*) $(-> $oret)?;)* }
        }
    };
    ($(#[$doc:meta])* $api:ident
        required { $($version:literal fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)* }
        optional { $($oversion:literal fn $opt:ident($($oarg:ident: $oty:ty),*) $(-> $oret:ty)?;)* }
    ) => {
        $(#[$doc])*
        #[allow(missing_docs)]
        #[derive(Debug)]
        pub struct $api {
            $(pub $name: unsafe extern "C" fn($($ty),*) $(-> $ret)?,)*
            $(pub $opt: Option<unsafe extern "C" fn($($oty),*) $(-> $oret)?>,)*
        }

        impl $api {
            /// Loads the library `name`, a file name for the loader's search or a path. It stays loaded:
            /// libibverbs and its drivers do not survive being unloaded.
            ///
            /// # Safety
            /// The file must be the library that these functions are of, or behave as it does.
            pub unsafe fn load(name: &str) -> Result<Self, $crate::sys::LoadFailure> {
                // SAFETY: forwarded to the caller.
                let library = unsafe { $crate::sys::open(name) }?;
                Ok(Self {
                    $($name: {
                        let found = $crate::sys::find(library, stringify!($name), $version).ok_or(
                            $crate::sys::LoadFailure::Symbol(stringify!($name), $version),
                        )?;
                        // SAFETY: the library's function of this name and version, whose signature
                        // is the one declared (checked by the compiler, or by a test that compares
                        // it with the C header); it is never unloaded.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($ty),*) $(-> $ret)?,
                            >(found)
                        }
                    },)*
                    $($opt: $crate::sys::find(library, stringify!($opt), $oversion).map(|found| {
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($oty),*) $(-> $oret)?,
                            >(found)
                        }
                    }),)*
                })
            }
        }
    };
}
pub(crate) use functions;

functions! {
    checked
    /// The functions of one loaded libibverbs. Those of newer versions may be absent.
    Api
    required {
        "IBVERBS_1.1" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
        "IBVERBS_1.1" fn ibv_free_device_list(list: *mut *mut ibv_device);
        "IBVERBS_1.1" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
        "IBVERBS_1.1" fn ibv_get_device_guid(device: *mut ibv_device) -> __be64;
        "IBVERBS_1.1" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        "IBVERBS_1.1" fn ibv_close_device(context: *mut ibv_context) -> c_int;
        "IBVERBS_1.1" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        "IBVERBS_1.1" fn ibv_ack_async_event(event: *mut ibv_async_event);
        "IBVERBS_1.1" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
        "IBVERBS_1.1" fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) -> c_int;
        "IBVERBS_1.1" fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
        "IBVERBS_1.1" fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, pkey: *mut __be16) -> c_int;
        "IBVERBS_1.1" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        "IBVERBS_1.1" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        "IBVERBS_1.1" fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr;
        "IBVERBS_1.1" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        "IBVERBS_1.0" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        "IBVERBS_1.0" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        "IBVERBS_1.1" fn ibv_create_cq(context: *mut ibv_context, cqe: c_int, user: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq;
        "IBVERBS_1.1" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
        "IBVERBS_1.1" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        "IBVERBS_1.1" fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, user: *mut *mut c_void) -> c_int;
        "IBVERBS_1.1" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint);
        "IBVERBS_1.1" fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
        "IBVERBS_1.1" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
        "IBVERBS_1.1" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
        "IBVERBS_1.1" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
        "IBVERBS_1.1" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        "IBVERBS_1.1" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
        "IBVERBS_1.1" fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int;
        "IBVERBS_1.1" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        "IBVERBS_1.1" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        "IBVERBS_1.1" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    }
    optional {
        // rdma-core 26.
        "IBVERBS_1.8" fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, len: usize, iova: u64, access: c_uint) -> *mut ibv_mr;
        // rdma-core 24.
        "IBVERBS_1.6" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        // rdma-core 33.
        "IBVERBS_1.11" fn _ibv_query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry, max: usize, flags: u32, size: usize) -> isize;
        // rdma-core 34.
        "IBVERBS_1.12" fn ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, len: usize, iova: u64, fd: c_int, access: c_int) -> *mut ibv_mr;
    }
}

/// Opens a library for good.
///
/// # Safety
/// Its initialisers may run on this thread.
pub(crate) unsafe fn open(name: &str) -> Result<*mut c_void, LoadFailure> {
    // SAFETY: forwarded to the caller.
    let library = unsafe { libloading::os::unix::Library::new(name) }.map_err(|error| {
        // The loader's own words are the source of `libloading`'s error.
        let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        LoadFailure::Library(words)
    })?;
    Ok(library.into_raw())
}

/// A versioned symbol. The header's inline functions and structures belong to one version of each
/// function; which one a plain `dlsym` finds is up to the library. An empty `version` is for libraries that
/// have none.
pub(crate) fn find(library: *mut c_void, name: &str, version: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    #[cfg_attr(not(target_env = "gnu"), allow(unused_variables))]
    let version = CString::new(version).ok()?;
    #[cfg(target_env = "gnu")]
    let found = match version.is_empty() {
        // SAFETY: a live handle and a NUL-terminated string.
        true => unsafe { libc::dlsym(library, name.as_ptr()) },
        // SAFETY: a live handle and two NUL-terminated strings.
        false => unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) },
    };
    // Other loaders have no versions; a library built for them has one of each function.
    // SAFETY: as above.
    #[cfg(not(target_env = "gnu"))]
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
