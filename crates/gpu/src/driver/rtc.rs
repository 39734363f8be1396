//! Compilers at run time: source in, machine code for one architecture out. NVRTC, and HIPRTC, whose
//! functions are the same under other names.

use crate::GpuError;
use crate::headers::HEADERS;
use crate::library::symbol;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Names of a vendor's compiler and of its functions.
pub(crate) struct Names {
    /// The library, in messages.
    pub(crate) library: &'static str,
    /// How the name of every function begins.
    pub(crate) prefix: &'static str,
    /// The word for machine code in the names of functions.
    pub(crate) code: &'static str,
}

type Handle = *mut c_void;

/// Results are integers: a newer compiler may return a code that no enum has.
struct Table {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    log_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    code_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    code: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Table {
    fn load(library: &Library, names: &Names) -> Result<Self, GpuError> {
        let (what, prefix, code) = (names.library, names.prefix, names.code);
        macro_rules! find {
            ($name:literal) => {{
                let name = format!($name);
                // SAFETY: the function of this name has the signature of the field that it is for; a C enum is
                // an `int`.
                unsafe { symbol(library, what, &name) }?
            }};
        }
        Ok(Self {
            version: find!("{prefix}Version"),
            create: find!("{prefix}CreateProgram"),
            compile: find!("{prefix}CompileProgram"),
            destroy: find!("{prefix}DestroyProgram"),
            log_size: find!("{prefix}GetProgramLogSize"),
            log: find!("{prefix}GetProgramLog"),
            code_size: find!("{prefix}Get{code}Size"),
            code: find!("{prefix}Get{code}"),
            error_string: find!("{prefix}GetErrorString"),
        })
    }
}

/// A loaded compiler.
pub struct Compiler {
    table: Table,
    version: (u32, u32),
    what: &'static str,
    _library: Library,
}

/// Result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// An ELF file for one architecture: a cubin, or an AMD code object.
    pub code: Vec<u8>,
    /// The compiler's messages: warnings, and output that options asked for; mostly empty.
    pub log: String,
}

/// Why a compilation gave no machine code.
#[derive(Debug)]
pub struct CompileFailure {
    /// The compiler's name for it.
    pub what: String,
    /// The compiler's messages.
    pub log: String,
}

impl Compiler {
    /// The compiler in a library.
    pub(crate) fn new(library: Library, names: &Names) -> Result<Self, GpuError> {
        let table = Table::load(&library, names)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to live locals.
        let code = unsafe { (table.version)(&mut major, &mut minor) };
        if code != 0 {
            let reason = format!("{}Version answers {code}", names.prefix);
            return Err(GpuError::Library { library: names.library, reason });
        }
        let version = (major as u32, minor as u32);
        Ok(Self { table, version, what: names.library, _library: library })
    }

    /// Major and minor version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Compiles `source`, called `name` in messages; it may include the headers of the device library.
    /// `options` name the architecture.
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
            (self.table.compile)(program.handle, options.len() as c_int, options.as_ptr())
        };
        if code != 0 {
            return Err(CompileFailure { what: self.error_name(code), log: program.log() });
        }
        Ok(Compiled { code: program.code()?, log: program.log() })
    }

    fn error_name(&self, code: c_int) -> String {
        // SAFETY: takes no pointer; answers a static string for any code.
        let text = unsafe { (self.table.error_string)(code) };
        if text.is_null() {
            return format!("{} error {code}", self.what);
        }
        // SAFETY: not null, so a static NUL-terminated string of the library.
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
    compiler: &'a Compiler,
    handle: Handle,
}

impl<'a> Program<'a> {
    fn new(compiler: &'a Compiler, source: &CStr, name: &CStr) -> Result<Self, CompileFailure> {
        let mut handle = std::ptr::null_mut();
        let names = HEADERS.map(|(name, _)| name.as_ptr());
        let texts = HEADERS.map(|(_, text)| text.as_ptr());
        // SAFETY: the strings are NUL-terminated and copied by the call, both lists have the length that
        // it is told, and the handle goes to a live local.
        let code = unsafe {
            (compiler.table.create)(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                HEADERS.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        compiler.ok(code)?;
        Ok(Self { compiler, handle })
    }

    fn log(&self) -> String {
        let table = &self.compiler.table;
        let mut len = 0;
        // SAFETY: the program is live; the length goes to a live local.
        let code = unsafe { (table.log_size)(self.handle, &mut len) };
        if code != 0 || len == 0 {
            return String::new();
        }
        let mut log = vec![0u8; len];
        // SAFETY: the program is live and `log` has the length that the compiler asked for.
        let code = unsafe { (table.log)(self.handle, log.as_mut_ptr().cast()) };
        if code != 0 {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }

    fn code(&self) -> Result<Vec<u8>, CompileFailure> {
        let table = &self.compiler.table;
        let mut len = 0;
        // SAFETY: the program is live; the length goes to a live local.
        let code = unsafe { (table.code_size)(self.handle, &mut len) };
        self.compiler.ok(code)?;
        if len == 0 {
            let what = "no machine code came out: do the options name a real architecture?";
            return Err(CompileFailure { what: what.to_owned(), log: self.log() });
        }
        let mut out = vec![0u8; len];
        // SAFETY: the program is live and `out` has the length that the compiler asked for.
        let code = unsafe { (table.code)(self.handle, out.as_mut_ptr().cast()) };
        self.compiler.ok(code)?;
        Ok(out)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live and this is its last use.
        unsafe { (self.compiler.table.destroy)(&mut self.handle) };
    }
}
