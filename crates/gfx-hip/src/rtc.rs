//! HIPRTC, by clang.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::path::Path;
use std::process::Command;

use crate::handles::Handles;

/// Names another clang than `clang++-19`, which knows the target and has lld.
const CLANG_ENV: &str = "WARPVERBS_CLANG";

/// `hiprtcResult`.
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const COMPILATION: c_int = 6;

struct Program {
    name: String,
    source: Vec<u8>,
    headers: Vec<(String, Vec<u8>)>,
    log: Vec<u8>,
    code: Vec<u8>,
}

static PROGRAMS: Handles<Program> = Handles::new();

fn with<R>(program: *mut c_void, get: impl FnOnce(&Program) -> R) -> Result<R, c_int> {
    PROGRAMS.with(program, get).ok_or(INVALID_PROGRAM)
}

fn result(done: Result<(), c_int>) -> c_int {
    done.map_or_else(|code| code, |()| 0)
}

/// # Safety
/// Null or a NUL-terminated text.
unsafe fn bytes(text: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: not null, and a text (the caller's obligation).
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
}

/// One of a list of texts.
///
/// # Safety
/// The list has more than `index`, each null or NUL-terminated.
unsafe fn nth(list: *const *const c_char, index: usize) -> Option<Vec<u8>> {
    // SAFETY: the caller's obligation.
    let text = unsafe { list.wrapping_add(index).read() };
    // SAFETY: the caller's obligation.
    unsafe { bytes(text) }
}

/// `const char* hiprtcGetErrorString(hiprtcResult)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hiprtcGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"HIPRTC_SUCCESS",
        INVALID_INPUT => c"HIPRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"HIPRTC_ERROR_INVALID_PROGRAM",
        COMPILATION => c"HIPRTC_ERROR_COMPILATION",
        _ => c"HIPRTC_ERROR_INTERNAL_ERROR",
    };
    text.as_ptr()
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    // The version is clang's.
    // SAFETY: the caller's pointer.
    unsafe { major.write(19) };
    // SAFETY: the caller's pointer.
    unsafe { minor.write(1) };
    0
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcCreateProgram(
    out: *mut *mut c_void,
    source: *const c_char,
    name: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> c_int {
    let header = |index: usize| {
        // SAFETY: one of the names that the caller says there are.
        let name = unsafe { nth(names, index) }?;
        // SAFETY: one of the headers, likewise.
        Some((String::from_utf8(name).ok()?, unsafe { nth(headers, index) }?))
    };
    let program = || {
        let headers = (0..count.max(0) as usize).map(header).collect::<Option<_>>()?;
        // SAFETY: the caller's text.
        let name = String::from_utf8(unsafe { bytes(name) }?).ok()?;
        // SAFETY: the caller's text.
        let source = unsafe { bytes(source) }?;
        Some(Program { name, source, headers, log: Vec::new(), code: Vec::new() })
    };
    let Some(program) = program() else { return INVALID_INPUT };
    // SAFETY: the caller's pointer.
    unsafe { out.write(PROGRAMS.add(program)) };
    0
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcDestroyProgram(program: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's pointer.
    let handle = unsafe { program.read() };
    result(PROGRAMS.remove(handle).map(drop).ok_or(INVALID_PROGRAM))
}

/// The messages, and the code object if there is one.
fn compile(program: &Program, options: &[String]) -> io::Result<(Vec<u8>, Option<Vec<u8>>)> {
    let folder = tempfile::tempdir()?;
    let put = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(path, text)
    };
    program.headers.iter().try_for_each(|(name, text)| put(name, text))?;
    put(&program.name, &program.source)?;
    let clang = std::env::var(CLANG_ENV).unwrap_or_else(|_| "clang++-19".to_owned());
    let device =
        ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"];
    let ran = Command::new(&clang)
        .current_dir(folder.path())
        .args(device)
        .args(options)
        .args(["-fdebug-compilation-dir=.", "-I.", "-o", "code.co", &program.name])
        .output();
    let ran = ran.map_err(|error| io::Error::new(error.kind(), format!("{clang}: {error}")))?;
    let code = ran.status.success().then(|| std::fs::read(folder.path().join("code.co")));
    Ok((ran.stderr, code.transpose()?))
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcCompileProgram(
    handle: *mut c_void,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    // SAFETY: one of as many texts as the caller says.
    let option = |index| unsafe { nth(options, index) }.and_then(|o| String::from_utf8(o).ok());
    let Some(options) = (0..count.max(0) as usize).map(option).collect::<Option<Vec<_>>>() else {
        return INVALID_INPUT;
    };
    // Out of the table meanwhile, so that others compile beside it.
    let Some(mut program) = PROGRAMS.remove(handle) else {
        return INVALID_PROGRAM;
    };
    let (log, code) = match compile(&program, &options) {
        Ok(done) => done,
        Err(error) => (error.to_string().into_bytes(), None),
    };
    let done = if code.is_some() { 0 } else { COMPILATION };
    (program.log, program.code) = (log, code.unwrap_or_default());
    PROGRAMS.put_back(handle, program);
    done
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcGetProgramLogSize(
    handle: *mut c_void,
    len: *mut usize,
) -> c_int {
    // With a NUL.
    let size = with(handle, |program| program.log.len() + 1);
    // SAFETY: the caller's pointer.
    result(size.map(|size| unsafe { len.write(size) }))
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcGetProgramLog(
    handle: *mut c_void,
    out: *mut c_char,
) -> c_int {
    result(with(handle, |program| {
        let text = program.log.iter().chain([&0]);
        // SAFETY: the caller has room for the size that it was told.
        text.enumerate()
            .for_each(|(at, byte)| unsafe { out.wrapping_add(at).write(*byte as c_char) });
    }))
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcGetCodeSize(handle: *mut c_void, len: *mut usize) -> c_int {
    let size = with(handle, |program| program.code.len());
    // SAFETY: the caller's pointer.
    result(size.map(|size| unsafe { len.write(size) }))
}

/// # Safety
/// As HIPRTC's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hiprtcGetCode(handle: *mut c_void, out: *mut c_char) -> c_int {
    result(with(handle, |program| {
        let (from, len) = (program.code.as_ptr(), program.code.len());
        // SAFETY: the caller has room for the size that it was told.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(from, len) };
    }))
}
