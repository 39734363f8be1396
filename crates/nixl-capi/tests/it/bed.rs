//! The library, and agents with memory in it.

use libloading::Library;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const IN_PROGRESS: c_int = 1;
pub(crate) const INVALID_PARAM: c_int = -1;
pub(crate) const BACKEND: c_int = -2;
pub(crate) const INVALID_STATE: c_int = -3;
pub(crate) const NO_TELEMETRY: c_int = -5;
pub(crate) const NOT_FOUND: c_int = -6;
pub(crate) const DRAM: u64 = 0;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    // SAFETY: this project's library, whose constructors are those of Rust.
    unsafe { Library::new(path()) }.unwrap()
});

/// The library that cargo has built beside this test.
pub(crate) fn path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let places = [folder, folder.parent().unwrap()].map(|place| place.join("libnixl_capi.so"));
    let found = places.into_iter().find(|path| path.exists());
    found.expect("the library is built for its tests")
}

type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> c_int;

/// Calls a function with integers and addresses; what it does not take, it does not see. `bool` and
/// enumerations are passed as integers are.
pub(crate) fn call(name: &str, args: &[u64]) -> c_int {
    // SAFETY: all functions of the interface that are called so take at most ten integers or pointers.
    let function = unsafe { LIBRARY.get::<Function>(name) }.unwrap();
    let mut all = [0; 10];
    all[..args.len()].copy_from_slice(args);
    let [a, b, c, d, e, f, g, h, i, j] = all;
    // SAFETY: arguments are as the test wants them: null, numbers, or addresses of places that are there.
    unsafe { function(a, b, c, d, e, f, g, h, i, j) }
}

/// As [`call`], which must succeed.
pub(crate) fn ok(name: &str, args: &[u64]) {
    assert_eq!(call(name, args), SUCCESS, "{name}: {}", last_error());
}

/// As [`call`], with a place for a result behind the arguments.
pub(crate) fn made(name: &str, args: &[u64]) -> u64 {
    let mut result = 0_u64;
    ok(name, &[args, &[at(&mut result)]].concat());
    result
}

pub(crate) fn at<T>(place: &mut T) -> u64 {
    ptr::from_mut(place).expose_provenance() as u64
}

pub(crate) fn text(text: &CStr) -> u64 {
    text.as_ptr().expose_provenance() as u64
}

pub(crate) fn has(name: &str) -> bool {
    // SAFETY: nothing is called.
    unsafe { LIBRARY.get::<Function>(name) }.is_ok()
}

pub(crate) fn is_stub() -> bool {
    // SAFETY: the function's type.
    let function =
        unsafe { LIBRARY.get::<unsafe extern "C" fn() -> bool>("nixl_capi_is_stub") }.unwrap();
    // SAFETY: it takes nothing.
    unsafe { function() }
}

/// The library's words on the last failure in this thread.
pub(crate) fn last_error() -> String {
    type Last = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: the function's type.
    let function = unsafe { LIBRARY.get::<Last>("warpverbs_nixl_last_error") }.unwrap();
    // SAFETY: it takes nothing.
    let text = unsafe { function() };
    if text.is_null() { String::new() } else { string(text) }
}

/// A string of the library's.
pub(crate) fn string(text: *const c_char) -> String {
    assert!(!text.is_null());
    // SAFETY: not null, so a string that is there until the test frees what it is of.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

/// A copy of bytes of the library's.
pub(crate) fn bytes(data: *const c_void, len: usize) -> Vec<u8> {
    assert!(!data.is_null());
    // SAFETY: not null, so as many bytes as the library said.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec()
}

unsafe extern "C" {
    fn free(memory: *mut c_void);
}

/// A copy of bytes that the library gives away, which are freed.
pub(crate) fn given(name: &str, args: &[u64], rest: &[u64]) -> Vec<u8> {
    let (mut data, mut len) = (ptr::null_mut::<c_void>(), 0_usize);
    ok(name, &[args, &[at(&mut data), at(&mut len)], rest].concat());
    if data.is_null() {
        assert_eq!(len, 0);
        return Vec::new();
    }
    let copy = bytes(data, len);
    // SAFETY: the library gave it to be freed so.
    unsafe { free(data) };
    copy
}

/// Printed, so that a failed run can be repeated.
pub(crate) fn seeded() -> StdRng {
    StdRng::seed_from_u64(warpverbs_dev::seed())
}

/// An agent, and memory that is not registered by itself.
pub(crate) struct Bed {
    pub(crate) agent: u64,
    pub(crate) backend: u64,
    pub(crate) name: CString,
    pub(crate) memory: Vec<u8>,
}

impl Bed {
    pub(crate) fn new(name: &str, len: usize, rng: &mut StdRng) -> Self {
        let name = CString::new(name).unwrap();
        let agent = made("nixl_capi_create_agent", &[text(&name)]);
        let params = made("nixl_capi_create_params", &[]);
        let backend = made("nixl_capi_create_backend", &[agent, text(c"UCX"), params]);
        ok("nixl_capi_destroy_params", &[params]);
        let mut memory = vec![0; len];
        rng.fill_bytes(&mut memory);
        Self { agent, backend, name, memory }
    }

    pub(crate) fn registered(name: &str, len: usize, rng: &mut StdRng) -> Self {
        let mut bed = Self::new(name, len, rng);
        let list = bed.reg(0, len);
        ok("nixl_capi_register_mem", &[bed.agent, list, 0]);
        ok("nixl_capi_destroy_reg_dlist", &[list]);
        bed
    }

    pub(crate) fn addr(&mut self) -> u64 {
        at(&mut self.memory[0])
    }

    /// A list of one range of its memory, to be registered.
    pub(crate) fn reg(&mut self, offset: u64, len: usize) -> u64 {
        let list = made("nixl_capi_create_reg_dlist", &[DRAM]);
        let desc = [list, self.addr() + offset, len as u64, 0, 0, 0];
        ok("nixl_capi_reg_dlist_add_desc", &desc);
        list
    }

    /// A list of ranges of its memory.
    pub(crate) fn list(&mut self, ranges: &[(usize, usize)]) -> u64 {
        let list = made("nixl_capi_create_xfer_dlist", &[DRAM]);
        for (offset, len) in ranges {
            let desc = [list, self.addr() + *offset as u64, *len as u64, 0];
            ok("nixl_capi_xfer_dlist_add_desc", &desc);
        }
        list
    }

    /// Loads the other's metadata.
    pub(crate) fn load(&self, other: &Self) {
        let metadata = given("nixl_capi_get_local_md", &[other.agent], &[]);
        self.load_bytes(&metadata, &other.name);
    }

    pub(crate) fn load_bytes(&self, metadata: &[u8], expected: &CStr) {
        let mut name = ptr::null_mut::<c_char>();
        let data = metadata.as_ptr().expose_provenance() as u64;
        let args = [self.agent, data, metadata.len() as u64, at(&mut name)];
        ok("nixl_capi_load_remote_md", &args);
        assert_eq!(string(name), expected.to_str().unwrap());
        // SAFETY: the library gave it to be freed so.
        unsafe { free(name.cast()) };
    }

    /// The first notifications that come, `count` of them, by senders.
    pub(crate) fn notified(&self, count: usize) -> Vec<(String, Vec<u8>)> {
        let map = made("nixl_capi_create_notif_map", &[]);
        let end = Instant::now() + SOON;
        loop {
            ok("nixl_capi_get_notifs", &[self.agent, map, 0]);
            let all = notifs(map);
            if all.len() >= count {
                ok("nixl_capi_destroy_notif_map", &[map]);
                return all;
            }
            assert!(Instant::now() < end, "{} of {count} notifications", all.len());
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ok("nixl_capi_destroy_backend", &[self.backend]);
            ok("nixl_capi_destroy_agent", &[self.agent]);
        }
    }
}

/// All that is in a map of notifications.
pub(crate) fn notifs(map: u64) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for sender in 0..made("nixl_capi_notif_map_size", &[map]) {
        let mut name = ptr::null::<c_char>();
        ok("nixl_capi_notif_map_get_agent_at", &[map, sender, at(&mut name)]);
        let c_name = name.expose_provenance() as u64;
        let size = made("nixl_capi_notif_map_get_notifs_size", &[map, c_name]);
        for index in 0..size {
            let (mut data, mut len) = (ptr::null::<c_void>(), 0_usize);
            let args = [map, c_name, index, at(&mut data), at(&mut len)];
            ok("nixl_capi_notif_map_get_notif", &args);
            all.push((string(name), bytes(data, len)));
        }
    }
    all
}

/// Posts, and polls until it is over.
pub(crate) fn run(agent: u64, request: u64, options: u64) -> c_int {
    let end = Instant::now() + SOON;
    let mut status = call("nixl_capi_post_xfer_req", &[agent, request, options]);
    while status == IN_PROGRESS {
        assert!(Instant::now() < end, "in progress for too long");
        status = call("nixl_capi_get_xfer_status", &[agent, request]);
    }
    status
}

/// Releases a transfer, and frees its handle.
pub(crate) fn end(agent: u64, request: u64) {
    assert_eq!(call("nixl_capi_destroy_xfer_req", &[request]), INVALID_STATE);
    ok("nixl_capi_release_xfer_req", &[agent, request]);
    assert_eq!(call("nixl_capi_release_xfer_req", &[agent, request]), INVALID_PARAM);
    ok("nixl_capi_destroy_xfer_req", &[request]);
    assert_eq!(call("nixl_capi_destroy_xfer_req", &[request]), INVALID_PARAM);
}
