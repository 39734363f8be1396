//! HIPRTC, by clang.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::path::Path;
use std::process::Command;

use crate::code::{Failure, codes, exports, put};
use crate::handles::Handles;

/// Names another clang than `clang++-19`, which knows the target and has lld.
const CLANG_ENV: &str = "WARPVERBS_CLANG";

codes! {
    Refused, null pointer Input, 0 c"HIPRTC_SUCCESS",
    Input 3 c"HIPRTC_ERROR_INVALID_INPUT",
    Program 4 c"HIPRTC_ERROR_INVALID_PROGRAM",
    Compilation 6 c"HIPRTC_ERROR_COMPILATION",
}

type Answer<T = ()> = Result<T, Refused>;

struct Program {
    name: String,
    source: Vec<u8>,
    headers: Vec<(String, Vec<u8>)>,
    log: Vec<u8>,
    code: Vec<u8>,
}

static PROGRAMS: Handles<Program> = Handles::new();

fn with<R>(program: *mut c_void, get: impl FnOnce(&Program) -> R) -> Answer<R> {
    PROGRAMS.with(program, get).ok_or(Refused::Program)
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

/// `const char* hiprtcGetErrorString(hiprtcResult)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hiprtcGetErrorString(code: c_int) -> *const c_char {
    Refused::name(code).unwrap_or(c"HIPRTC_ERROR_INTERNAL_ERROR").as_ptr()
}

exports! {
    /// The version is clang's.
    fn hiprtcVersion(minor: *mut c_int) -> c_int {
        // SAFETY: the caller's pointer.
        unsafe { put(minor, 1) }.map(|()| 19)
    }

    fn hiprtcCreateProgram(
        source: *const c_char,
        name: *const c_char,
        count: c_int,
        headers: *const *const c_char,
        names: *const *const c_char,
    ) -> *mut c_void {
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
        program().map(|program| PROGRAMS.add(program)).ok_or(Refused::Input)
    }

    fn hiprtcDestroyProgram(program: *mut *mut c_void) {
        // SAFETY: the caller's pointer.
        let handle = unsafe { program.read() };
        PROGRAMS.remove(handle).map(drop).ok_or(Refused::Program)
    }

    fn hiprtcCompileProgram(handle: *mut c_void, count: c_int, options: *const *const c_char) {
        // SAFETY: one of as many texts as the caller says.
        let option = |index| unsafe { nth(options, index) }.and_then(|o| String::from_utf8(o).ok());
        let options = (0..count.max(0) as usize).map(option).collect::<Option<Vec<_>>>();
        let options = options.ok_or(Refused::Input)?;
        // Out of the table meanwhile, so that others compile beside it.
        let mut program = PROGRAMS.remove(handle).ok_or(Refused::Program)?;
        let (log, code) = match compile(&program, &options) {
            Ok(done) => done,
            Err(error) => (error.to_string().into_bytes(), None),
        };
        let done = if code.is_some() { Ok(()) } else { Err(Refused::Compilation) };
        (program.log, program.code) = (log, code.unwrap_or_default());
        PROGRAMS.put_back(handle, program);
        done
    }

    fn hiprtcGetProgramLogSize(handle: *mut c_void, len: *mut usize) {
        // With a NUL.
        let size = with(handle, |program| program.log.len() + 1)?;
        // SAFETY: the caller's pointer.
        unsafe { put(len, size) }
    }

    fn hiprtcGetProgramLog(handle: *mut c_void, out: *mut c_char) {
        let text = with(handle, |program| [&program.log[..], b"\0"].concat())?;
        // SAFETY: the caller has room for the size that it was told.
        unsafe { copy(&text, out) };
        Ok(())
    }

    fn hiprtcGetCodeSize(handle: *mut c_void, len: *mut usize) {
        let size = with(handle, |program| program.code.len())?;
        // SAFETY: the caller's pointer.
        unsafe { put(len, size) }
    }

    fn hiprtcGetCode(handle: *mut c_void, out: *mut c_char) {
        // SAFETY: the caller has room for the size that it was told.
        with(handle, |program| unsafe { copy(&program.code, out) })
    }
}

/// # Safety
/// `out` has room for the bytes.
unsafe fn copy(bytes: &[u8], out: *mut c_char) {
    // SAFETY: the caller's obligation.
    unsafe { out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}
