//! NVRTC, the run-time compiler of CUDA C++: where it is found.

use crate::GpuError;
use crate::driver::rtc::{Compiler, Names};
use crate::library::{open_first, open_library};
use cudarc::nvrtc::sys;
use libloading::Library;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

const NAMES: Names = Names { library: "NVRTC", prefix: "nvrtc", code: "CUBIN" };

/// Names an NVRTC library that stands outside the loader's path.
pub const NVRTC_ENV: &str = "WARPVERBS_NVRTC";

type Program = sys::nvrtcProgram;
type Text = *const c_char;

// The signatures that the shared table assumes are those of the generated bindings, but for the type of a handle.
const _: unsafe fn(*mut c_int, *mut c_int) -> sys::nvrtcResult = sys::nvrtcVersion;
const _: unsafe fn(*mut Program, Text, Text, c_int, *const Text, *const Text) -> sys::nvrtcResult =
    sys::nvrtcCreateProgram;
const _: unsafe fn(Program, c_int, *const Text) -> sys::nvrtcResult = sys::nvrtcCompileProgram;
const _: unsafe fn(*mut Program) -> sys::nvrtcResult = sys::nvrtcDestroyProgram;
const _: unsafe fn(Program, *mut usize) -> sys::nvrtcResult = sys::nvrtcGetProgramLogSize;
const _: unsafe fn(Program, *mut c_char) -> sys::nvrtcResult = sys::nvrtcGetProgramLog;
const _: unsafe fn(Program, *mut usize) -> sys::nvrtcResult = sys::nvrtcGetCUBINSize;
const _: unsafe fn(Program, *mut c_char) -> sys::nvrtcResult = sys::nvrtcGetCUBIN;

struct Loaded {
    compiler: Compiler,
    _builtins: Option<Library>,
}

/// The compiler, loaded on first use.
pub fn nvrtc() -> Result<&'static Compiler, GpuError> {
    static NVRTC: OnceLock<Loaded> = OnceLock::new();
    if let Some(loaded) = NVRTC.get() {
        return Ok(&loaded.compiler);
    }
    let loaded = load(&candidates())?;
    Ok(&NVRTC.get_or_init(|| loaded).compiler)
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

fn load(candidates: &[String]) -> Result<Loaded, GpuError> {
    let names: Vec<&str> = candidates.iter().map(String::as_str).collect();
    let (library, name) = open_first(NAMES.library, &names)?;
    let compiler = Compiler::new(library, &NAMES)?;
    let _builtins = open_builtins(name, compiler.version());
    Ok(Loaded { compiler, _builtins })
}
