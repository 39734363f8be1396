//! Replacements of functions of the GPUs' driver. Programs register doorbell registers with CUDA as
//! I/O memory, which the driver refuses for ours, since they are ordinary memory; here they are
//! registered as ordinary memory. The address of memory that is exported as a dmabuf is remembered.
//!
//! Programs get the driver's functions by `dlsym` and `cuGetProcAddress`, so these are what must be
//! replaced. Nothing else that is looked up by them is touched.

use crate::dmabuf;
use crate::files::is_register;
use crate::inside::inside;
use crate::process::Own;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IO_MEMORY: c_uint = 4;
/// `CUDA_SUCCESS`, `CUDA_ERROR_NOT_INITIALIZED`.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 3;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_FD: c_int = 1;
/// Bytes of a page, the least that can be registered.
const PAGE: usize = 4096;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int;
type Unregister = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetRange = unsafe extern "C" fn(*mut c_void, u64, usize, c_int, u64) -> c_int;
type GetAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type GetAddress2 =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_void) -> c_int;

/// A function of the driver, once the program has asked for it.
struct Function(AtomicPtr<c_void>);

impl Function {
    const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn get(&self) -> Option<*mut c_void> {
        Some(self.0.load(Ordering::Acquire)).filter(|function| !function.is_null())
    }
}

static REGISTER: Function = Function::none();
static UNREGISTER: Function = Function::none();
static GET_RANGE: Function = Function::none();
static GET_ADDRESS: Function = Function::none();
static GET_ADDRESS_2: Function = Function::none();

/// Replacements of the driver's functions: name, ours, where the driver's is kept.
fn replaced(name: &CStr) -> Option<(*mut c_void, &'static Function)> {
    Some(match name.to_bytes() {
        b"cuMemHostRegister" | b"cuMemHostRegister_v2" => (register as *mut c_void, &REGISTER),
        b"cuMemHostUnregister" => (unregister as *mut c_void, &UNREGISTER),
        b"cuMemGetHandleForAddressRange" => (get_range as *mut c_void, &GET_RANGE),
        b"cuGetProcAddress" => (get_address as *mut c_void, &GET_ADDRESS),
        b"cuGetProcAddress_v2" => (get_address_2 as *mut c_void, &GET_ADDRESS_2),
        _ => return None,
    })
}

/// Pages that are registered, and how often: several registers lie in one.
static PAGES: Own<Mutex<BTreeMap<usize, usize>>> = Own::new();

unsafe extern "C" fn register(at: *mut c_void, len: usize, flags: c_uint) -> c_int {
    let Some(real) = REGISTER.get() else { return NOT_INITIALIZED };
    // SAFETY: the driver's function of this type.
    let real = unsafe { transmute::<*mut c_void, Register>(real) };
    let page = at as usize & !(PAGE - 1);
    let ends_in_page = (at as usize - page).saturating_add(len) <= PAGE;
    if flags & IO_MEMORY == 0 || !ends_in_page || inside(|| is_register(page)) != Some(true) {
        // SAFETY: the caller's arguments.
        return unsafe { real(at, len, flags) };
    }
    let mut pages = PAGES.get().lock().unwrap_or_else(PoisonError::into_inner);
    let count = pages.entry(page).or_default();
    if *count == 0 {
        // SAFETY: a page of this process, which is mapped.
        let code = unsafe { real(page as *mut c_void, PAGE, flags & !IO_MEMORY) };
        if code != SUCCESS {
            pages.remove(&page);
            return code;
        }
    }
    *count += 1;
    SUCCESS
}

unsafe extern "C" fn unregister(at: *mut c_void) -> c_int {
    let Some(real) = UNREGISTER.get() else { return NOT_INITIALIZED };
    // SAFETY: the driver's function of this type.
    let real = unsafe { transmute::<*mut c_void, Unregister>(real) };
    let page = at as usize & !(PAGE - 1);
    let mut pages = PAGES.get().lock().unwrap_or_else(PoisonError::into_inner);
    match pages.get_mut(&page) {
        // SAFETY: the caller's argument.
        None => unsafe { real(at) },
        Some(1) => {
            pages.remove(&page);
            // SAFETY: registered by `register`.
            unsafe { real(page as *mut c_void) }
        }
        Some(count) => {
            *count -= 1;
            SUCCESS
        }
    }
}

unsafe extern "C" fn get_range(
    handle: *mut c_void,
    address: u64,
    len: usize,
    kind: c_int,
    flags: u64,
) -> c_int {
    let Some(real) = GET_RANGE.get() else { return NOT_INITIALIZED };
    // SAFETY: the driver's function of this type.
    let real = unsafe { transmute::<*mut c_void, GetRange>(real) };
    // SAFETY: the caller's arguments.
    let code = unsafe { real(handle, address, len, kind, flags) };
    if code == SUCCESS && kind == DMA_BUF_FD {
        // SAFETY: the driver has written a descriptor there.
        let fd = unsafe { handle.cast::<c_int>().read_unaligned() };
        inside(|| dmabuf::remember(fd, address, len as u64));
    }
    code
}

/// Puts ours in the place of what the driver has found.
///
/// # Safety
/// `name` ends with a zero byte; `found` may be written.
unsafe fn replace(name: *const c_char, found: *mut *mut c_void) {
    if name.is_null() || found.is_null() {
        return;
    }
    // SAFETY: the caller says that it ends.
    let Some((ours, kept)) = replaced(unsafe { CStr::from_ptr(name) }) else { return };
    // SAFETY: the caller says so.
    let theirs = unsafe { found.replace(ours) };
    match theirs.is_null() {
        // SAFETY: as above.
        true => unsafe { *found = theirs },
        false => kept.0.store(theirs, Ordering::Release),
    }
}

/// The name that has the form of [`GetAddress2`]: programs ask by the name without a version.
fn of_version_2(name: *const c_char, version: c_int) -> *const c_char {
    // SAFETY: names given to the driver end with a zero byte, or are null.
    let is_own = !name.is_null() && unsafe { CStr::from_ptr(name) } == c"cuGetProcAddress";
    if is_own && version >= 12000 { c"cuGetProcAddress_v2".as_ptr() } else { name }
}

unsafe extern "C" fn get_address(
    name: *const c_char,
    found: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    let Some(real) = GET_ADDRESS.get() else { return NOT_INITIALIZED };
    // SAFETY: the driver's function of this type.
    let real = unsafe { transmute::<*mut c_void, GetAddress>(real) };
    // SAFETY: the caller's arguments.
    let code = unsafe { real(name, found, version, flags) };
    if code == SUCCESS {
        // SAFETY: the driver has read the name and written the address.
        unsafe { replace(of_version_2(name, version), found) };
    }
    code
}

unsafe extern "C" fn get_address_2(
    name: *const c_char,
    found: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_void,
) -> c_int {
    let Some(real) = GET_ADDRESS_2.get() else { return NOT_INITIALIZED };
    // SAFETY: the driver's function of this type.
    let real = unsafe { transmute::<*mut c_void, GetAddress2>(real) };
    // SAFETY: the caller's arguments.
    let code = unsafe { real(name, found, version, flags, status) };
    if code == SUCCESS {
        // SAFETY: the driver has read the name and written the address.
        unsafe { replace(of_version_2(name, version), found) };
    }
    code
}

/// The C library's `dlsym`, by its versions on this processor.
fn real_dlsym() -> *mut c_void {
    static REAL: Function = Function::none();
    if let Some(real) = REAL.get() {
        return real;
    }
    for version in [c"GLIBC_2.34", c"GLIBC_2.2.5"] {
        // SAFETY: names that end with a zero byte.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            REAL.0.store(found, Ordering::Release);
            return found;
        }
    }
    eprintln!("warpverbs: the C library has no dlsym; glibc 2.33 or newer is needed");
    std::process::abort();
}

/// The function that answers `dlsym(handle, name)`: the C library's own, which must be called by the
/// program itself because it looks who calls, unless the name is one of ours.
unsafe extern "C" fn answers(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let real = real_dlsym();
    if handle.is_null() || handle == libc::RTLD_NEXT || name.is_null() {
        return real;
    }
    // SAFETY: a name ends with a zero byte.
    match replaced(unsafe { CStr::from_ptr(name) }) {
        Some(_) => found as *mut c_void,
        None => real,
    }
}

/// `dlsym` of a function of the driver.
unsafe extern "C" fn found(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the C library's function has this type.
    let real = unsafe { transmute::<*mut c_void, Dlsym>(real_dlsym()) };
    // SAFETY: the caller's arguments.
    let mut theirs = unsafe { real(handle, name) };
    // SAFETY: a name that ends, and a variable.
    unsafe { replace(name, &mut theirs) };
    theirs
}

/// Goes on in the function that `answers` names, as if the program had called that.
///
/// # Safety
/// As for the C library's `dlsym`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        // The stack is aligned to 16 bytes at a call.
        "sub rsp, 8",
        "call {answers}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        answers = sym answers,
    )
}
