//! NVRTC, the run-time compiler: CUDA C++ source in, cubin for one architecture out.

use super::api::{open_first, open_library, symbol};
use crate::GpuError;
use crate::headers::HEADERS;
use cudarc::nvrtc::sys;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

const LIBRARY: &str = "NVRTC";

/// Names an NVRTC library that stands outside the loader's path.
pub const NVRTC_ENV: &str = "WARPVERBS_NVRTC";

macro_rules! nvrtc_api {
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)*) => {
        // A signature that differs from the generated binding does not compile.
        $(const _: unsafe fn($($ty),*) -> sys::nvrtcResult = sys::$name;)*

        /// Results are integers: a newer NVRTC may answer what the generated enum does not know.
        #[allow(non_snake_case)]
        struct Table {
            $($name: unsafe extern "C" fn($($ty),*) -> c_int,)*
        }

        impl Table {
            fn load(library: &Library) -> Result<Self, GpuError> {
                Ok(Self {
                    // SAFETY: NVRTC's function of this name, with the signature checked above.
                    $($name: unsafe { symbol(library, LIBRARY, stringify!($name)) }?,)*
                })
            }
        }
    };
}

nvrtc_api! {
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    fn nvrtcCreateProgram(program: *mut sys::nvrtcProgram, source: *const c_char, name: *const c_char, headers: c_int, sources: *const *const c_char, names: *const *const c_char);
    fn nvrtcCompileProgram(program: sys::nvrtcProgram, count: c_int, options: *const *const c_char);
    fn nvrtcDestroyProgram(program: *mut sys::nvrtcProgram);
    fn nvrtcGetProgramLogSize(program: sys::nvrtcProgram, len: *mut usize);
    fn nvrtcGetProgramLog(program: sys::nvrtcProgram, log: *mut c_char);
    fn nvrtcGetCUBINSize(program: sys::nvrtcProgram, len: *mut usize);
    fn nvrtcGetCUBIN(program: sys::nvrtcProgram, cubin: *mut c_char);
}

type GetErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The loaded compiler.
pub struct Nvrtc {
    table: Table,
    error_string: GetErrorString,
    version: (u32, u32),
    _libraries: (Library, Option<Library>),
}

/// Result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// An ELF file for one architecture.
    pub cubin: Vec<u8>,
    /// The compiler's messages: warnings, and output that options asked for; mostly empty.
    pub log: String,
}

/// Why a compilation gave no cubin.
#[derive(Debug)]
pub struct CompileFailure {
    /// NVRTC's name for it.
    pub what: String,
    /// The compiler's messages, `file(line): …`.
    pub log: String,
}

/// The compiler, loaded on first use.
pub fn nvrtc() -> Result<&'static Nvrtc, GpuError> {
    static NVRTC: OnceLock<Nvrtc> = OnceLock::new();
    if let Some(nvrtc) = NVRTC.get() {
        return Ok(nvrtc);
    }
    let nvrtc = Nvrtc::load(&candidates())?;
    Ok(NVRTC.get_or_init(|| nvrtc))
}

/// Where NVRTC may be: what the user names, the loader's path, the usual toolkit folders.
fn candidates() -> Vec<String> {
    if let Ok(named) = std::env::var(NVRTC_ENV) {
        return vec![named];
    }
    let names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
    let mut found: Vec<String> = names.map(str::to_owned).into();
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|key| std::env::var(key).ok());
    for home in homes.chain(["/usr/local/cuda".to_owned()]) {
        found.extend(names.iter().map(|name| format!("{home}/lib64/{name}")));
    }
    found
}

/// NVRTC opens its companion by bare name when it compiles. Where NVRTC was found by path the
/// loader may not know the folder, but it does know a library that is loaded already.
fn open_builtins(nvrtc: &str, (major, minor): (u32, u32)) -> Option<Library> {
    let folder = Path::new(nvrtc).parent().filter(|folder| folder.is_absolute())?;
    let path = folder.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
    open_library("libnvrtc-builtins", &[path.to_str()?]).ok()
}

impl Nvrtc {
    fn load(candidates: &[String]) -> Result<Self, GpuError> {
        let names: Vec<&str> = candidates.iter().map(String::as_str).collect();
        let (library, name) = open_first(LIBRARY, &names)?;
        let table = Table::load(&library)?;
        // SAFETY: `const char* nvrtcGetErrorString(nvrtcResult)`; a C enum is passed as an int.
        let error_string = unsafe { symbol(&library, LIBRARY, "nvrtcGetErrorString") }?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to live locals.
        let code = unsafe { (table.nvrtcVersion)(&mut major, &mut minor) };
        if code != 0 {
            let reason = format!("nvrtcVersion answers {code}");
            return Err(GpuError::Library { library: LIBRARY, reason });
        }
        let version = (major as u32, minor as u32);
        let builtins = open_builtins(name, version);
        Ok(Self { table, error_string, version, _libraries: (library, builtins) })
    }

    /// Major and minor version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Compiles `source`, called `name` in messages, to a cubin; it may include the headers of the device
    /// library. `options` name the architecture.
    pub fn compile(
        &self,
        source: &str,
        name: &str,
        options: &[String],
    ) -> Result<Compiled, CompileFailure> {
        let source = c_string("source", source)?;
        let name = c_string("name", name)?;
        let owned: Vec<CString> =
            options.iter().map(|o| c_string("option", o)).collect::<Result<_, _>>()?;
        let options: Vec<*const c_char> = owned.iter().map(|o| o.as_ptr()).collect();
        let program = Program::new(self, &source, &name)?;
        // SAFETY: the program is live, and so are the strings behind `options`: `owned` has them.
        let code = unsafe {
            (self.table.nvrtcCompileProgram)(
                program.handle,
                options.len() as c_int,
                options.as_ptr(),
            )
        };
        if code != 0 {
            return Err(CompileFailure { what: self.error_name(code), log: program.log() });
        }
        Ok(Compiled { cubin: program.cubin()?, log: program.log() })
    }

    fn error_name(&self, code: c_int) -> String {
        // SAFETY: takes no pointer; answers a static string for any code.
        let text = unsafe { (self.error_string)(code) };
        if text.is_null() {
            return format!("NVRTC error {code}");
        }
        // SAFETY: not null, so a static NUL-terminated string of NVRTC.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn ok(&self, code: c_int) -> Result<(), CompileFailure> {
        if code == 0 {
            return Ok(());
        }
        Err(CompileFailure { what: self.error_name(code), log: String::new() })
    }
}

fn c_string(what: &str, text: &str) -> Result<CString, CompileFailure> {
    CString::new(text).map_err(|error| CompileFailure {
        what: format!("{what} holds a NUL byte at {}", error.nul_position()),
        log: String::new(),
    })
}

/// A program handle, destroyed on drop.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: sys::nvrtcProgram,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &CStr, name: &CStr) -> Result<Self, CompileFailure> {
        let mut handle = std::ptr::null_mut();
        let names = HEADERS.map(|(name, _)| name.as_ptr());
        let texts = HEADERS.map(|(_, text)| text.as_ptr());
        // SAFETY: the strings are NUL-terminated and copied by the call, both lists have the length that
        // it is told, and the handle goes to a live local.
        let code = unsafe {
            (nvrtc.table.nvrtcCreateProgram)(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                HEADERS.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        nvrtc.ok(code)?;
        Ok(Self { nvrtc, handle })
    }

    fn log(&self) -> String {
        let mut len = 0;
        // SAFETY: the program is live; the length goes to a live local.
        let code = unsafe { (self.nvrtc.table.nvrtcGetProgramLogSize)(self.handle, &mut len) };
        if code != 0 || len == 0 {
            return String::new();
        }
        let mut log = vec![0u8; len];
        // SAFETY: the program is live and `log` has the length that NVRTC asked for.
        let code =
            unsafe { (self.nvrtc.table.nvrtcGetProgramLog)(self.handle, log.as_mut_ptr().cast()) };
        if code != 0 {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, CompileFailure> {
        let mut len = 0;
        // SAFETY: the program is live; the length goes to a live local.
        let code = unsafe { (self.nvrtc.table.nvrtcGetCUBINSize)(self.handle, &mut len) };
        self.nvrtc.ok(code)?;
        if len == 0 {
            let what = "NVRTC made no cubin: the options name a virtual architecture".to_owned();
            return Err(CompileFailure { what, log: self.log() });
        }
        let mut cubin = vec![0u8; len];
        // SAFETY: the program is live and `cubin` has the length that NVRTC asked for.
        let code =
            unsafe { (self.nvrtc.table.nvrtcGetCUBIN)(self.handle, cubin.as_mut_ptr().cast()) };
        self.nvrtc.ok(code)?;
        Ok(cubin)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live and this is its last use.
        unsafe { (self.nvrtc.table.nvrtcDestroyProgram)(&mut self.handle) };
    }
}
