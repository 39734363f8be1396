//! A helper for build scripts of packages with kernels: a directory of `.cu` files becomes host objects
//! for the SIMT device, embedded sources for run-time compilation on a GPU, and typed launchers.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), warpverbs_kernel_build::BuildError> {
//!     warpverbs_kernel_build::Builder::new("kernels").compile()
//! }
//! ```
//!
//! and in the crate, which must depend on `warpverbs`:
//!
//! ```ignore
//! #[allow(unsafe_code)]
//! pub mod kernels {
//!     include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
//! }
//! ```
//!
//! Each `NAME.cu` is a module `kernels::NAME` with its `IMAGE` and, for every
//! `WV_KERNEL(some_name)(…)`, a struct `SomeName` whose fields are the parameters: numbers,
//! `Local`, `Remote`, structures of the source, and typed pointers. Host compiler and GPU compiler
//! are given the same text, in which the project's own includes are expanded, and the same headers of the device
//! library, which `warpverbs-gpu` has for the GPU compiler.
//!
//! With `WARPVERBS_KERNELS=check` in its environment a build checks the kernels for the host and compiles none, for
//! `cargo check`: nothing can be linked with what it leaves.
//!
//! Only its author knows what a kernel does with its pointers. `WV_KERNEL` says nothing of it, and
//! its launch is `unsafe`. With `WV_SAFE_KERNEL` the author promises that the kernel, whatever its
//! other arguments, touches at most the first `WV_COUNT(…)` elements of each pointer, and one behind
//! each pointer inside a structure; its launch checks the lengths and is safe.
#![forbid(unsafe_code)]

mod count;
mod emit;
mod error;
mod flatten;
mod library;
mod mirror;
mod scan;
mod signature;
mod structure;
mod types;

pub use error::BuildError;
pub use library::headers;
pub use mirror::{Mirror, generated};

use error::io;
use signature::Signature;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use types::Structure;

/// Sources and options of a build. Paths are relative to the package.
#[derive(Clone, Debug)]
pub struct Builder {
    sources: PathBuf,
    includes: Vec<PathBuf>,
    left_out: Vec<String>,
    every_nic: Vec<String>,
    gpu_path: String,
}

/// A `.cu` file after parsing.
struct Unit {
    /// File stem: name of the module and of the image.
    name: String,
    /// The text that compilers get.
    text: String,
    kernels: Vec<Signature>,
    /// Whether it is compiled for every NIC.
    every_nic: bool,
    /// Structures that the kernels' parameters name, those inside others first.
    structures: Vec<Structure>,
}

/// Writes `headers.rs` into the build script's output folder: `HEADERS`, pairs of name and text as
/// `&CStr`, and `HEADERS_HASH`. For the build script of `warpverbs-gpu`, which hands them to run-time
/// compilers; kernels of all packages share them.
pub fn embed_headers() -> Result<(), BuildError> {
    println!("cargo::rerun-if-changed={}", headers().display());
    write(&PathBuf::from(variable("OUT_DIR")?).join("headers.rs"), &library::embedded()?)
}

impl Builder {
    /// All `.cu` files directly in `sources`. They find the device library's [`headers`].
    pub fn new(sources: impl Into<PathBuf>) -> Self {
        let gpu_path = "::warpverbs::raw::gpu".to_owned();
        let includes = vec![headers().to_path_buf()];
        let (left_out, every_nic) = (Vec::new(), Vec::new());
        Self { sources: sources.into(), includes, left_out, every_nic, gpu_path }
    }

    /// Adds a directory in which `#include "…"` is looked up.
    pub fn include(mut self, directory: impl Into<PathBuf>) -> Self {
        self.includes.push(directory.into());
        self
    }

    /// Leaves out the files `NAME.cu` of these names, such as those of a feature that is off.
    pub fn leave_out(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.left_out.extend(names.into_iter().map(Into::into));
        self
    }

    /// Compiles the files `NAME.cu` of these names for queue pairs of every format (`wv::nic_format`), by
    /// themselves: in each `wv::Qp` is a queue pair of that format, and a launch takes the one of its queue
    /// pairs. All others are for mlx5's alone.
    pub fn every_nic(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.every_nic.extend(names.into_iter().map(Into::into));
        self
    }

    /// Path of the types that generated code uses, for a package that renames `warpverbs`
    /// (`::other_name::raw::gpu`) or depends on `warpverbs-gpu` alone (`::warpverbs_gpu`).
    pub fn gpu_path(mut self, path: impl Into<String>) -> Self {
        self.gpu_path = path.into();
        self
    }

    /// Generates, compiles, and tells cargo what to link and what to watch. For build scripts.
    pub fn compile(&self) -> Result<(), BuildError> {
        let out = PathBuf::from(variable("OUT_DIR")?);
        let package = variable("CARGO_PKG_NAME")?;
        let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
        let mut inputs = BTreeSet::from([self.sources.clone(), headers().to_path_buf()]);
        let units = self.units(&root, &mut inputs)?;
        for input in &inputs {
            println!("cargo::rerun-if-changed={}", input.display());
        }
        let mut sources = Vec::new();
        for unit in &units {
            write(&out.join(format!("{}.cu", unit.name)), &unit.text)?;
            for nic in unit.nics() {
                let host = out.join(format!("{}.{}.host.cc", unit.name, nic.name));
                write(&host, &emit::host_source(unit, &package, nic))?;
                sources.push(host);
            }
        }
        let same = emit::same_headers(library::headers_hash()?, &self.gpu_path);
        let launchers = emit::launchers(&units, &package, &self.gpu_path);
        write(&out.join("kernels.rs"), &(same + &launchers))?;
        if units.is_empty() {
            return Ok(());
        }
        let mut build = host_compiler();
        build.include(headers());
        println!("cargo::rerun-if-env-changed={KERNELS_VARIABLE}");
        if std::env::var(KERNELS_VARIABLE).is_ok_and(|value| value == "check") {
            return check(&build, &sources);
        }
        build
            .files(sources)
            .try_compile(&format!("{}_kernels", emit::identifier(&package)))
            .map_err(|e| BuildError::Compile { message: e.to_string() })
    }

    fn units(&self, root: &Path, inputs: &mut BTreeSet<PathBuf>) -> Result<Vec<Unit>, BuildError> {
        let directory = root.join(&self.sources);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(io(&self.sources))? {
            let name = entry.map_err(io(&self.sources))?.file_name();
            let stem = Path::new(&name).file_stem().and_then(|stem| stem.to_str());
            let left_out = stem.is_some_and(|stem| self.left_out.iter().any(|out| out == stem));
            if !left_out && Path::new(&name).extension().is_some_and(|e| e == "cu") {
                names.push(name);
            }
        }
        names.sort();
        names.iter().map(|name| self.unit(root, &self.sources.join(name), inputs)).collect()
    }

    fn unit(
        &self,
        root: &Path,
        file: &Path,
        inputs: &mut BTreeSet<PathBuf>,
    ) -> Result<Unit, BuildError> {
        let name = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        if !signature::is_identifier(&name) || signature::is_rust_keyword(&name) {
            return Err(BuildError::FileName { file: file.to_owned() });
        }
        let flattener = flatten::Flattener { root, includes: &self.includes, library: headers() };
        let flat = flattener.flatten(file)?;
        inputs.extend(flat.inputs);
        let source = std::fs::read_to_string(root.join(file)).map_err(io(file))?;
        let kernels = signature::parse(file, &source)?;
        let structures = structure::of_kernels(file, &flat.text, &kernels)?;
        let every_nic = self.every_nic.contains(&name);
        let unit = Unit { name, text: flat.text, kernels, every_nic, structures };
        unit.check(file)?;
        Ok(unit)
    }
}

/// A NIC that a unit is compiled for.
struct Nic {
    /// Namespace of its format in the device library.
    name: &'static str,
    /// A `NicFormat`.
    format: &'static str,
}

/// All; the first is the one that needs no word.
const NICS: [Nic; 3] = [
    Nic { name: "mlx5", format: "Mlx5" },
    Nic { name: "bnxt", format: "Bnxt" },
    Nic { name: "ionic", format: "Ionic" },
];

impl Nic {
    fn is_usual(&self) -> bool {
        self.name == NICS[0].name
    }
}

impl Unit {
    /// Those that it is compiled for.
    fn nics(&self) -> &'static [Nic] {
        if self.every_nic { &NICS } else { &NICS[..1] }
    }

    /// Every `WV_COUNT` can be computed, and no kernel takes more bytes than it may.
    fn check(&self, file: &Path) -> Result<(), BuildError> {
        for kernel in &self.kernels {
            let mut bytes = 0;
            for parameter in &kernel.parameters {
                let error = |reason| BuildError::Parameter {
                    place: error::Place { file: file.to_owned(), line: kernel.line },
                    kernel: kernel.name.clone(),
                    parameter: parameter.name.clone(),
                    reason,
                };
                if let Some(count) = &parameter.count {
                    count::rust(count, &kernel.parameters, "").map_err(error)?;
                }
                let layout = parameter.ty.layout(&self.structures);
                bytes += layout.map_or(0, |layout| layout.size.next_multiple_of(16));
                if bytes > MOST_BYTES {
                    return Err(error("the parameters exceed 4096 bytes"));
                }
            }
        }
        Ok(())
    }
}

/// Bytes of a kernel's parameters, each padded to 16.
const MOST_BYTES: usize = 4096;

/// Name of the environment variable that says, if it is `check`, that kernels are not compiled for the host, only
/// checked: for `cargo check`, after which nothing is linked.
const KERNELS_VARIABLE: &str = "WARPVERBS_KERNELS";

/// The compiler reads the sources and generates nothing. Its warnings are passed on to cargo.
fn check(build: &cc::Build, sources: &[PathBuf]) -> Result<(), BuildError> {
    let error = |message| BuildError::Compile { message };
    let compiler = build.try_get_compiler().map_err(|e| error(e.to_string()))?;
    let mut command = compiler.to_command();
    let output = command.arg("-fsyntax-only").args(sources).output();
    let output = output.map_err(|e| error(format!("{}: {e}", compiler.path().display())))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(error(format!("{}\n{said}", output.status)));
    }
    said.lines().for_each(|line| println!("cargo::warning={line}"));
    Ok(())
}

/// Compiler and flags for device code that is compiled for the host; add its files and the folder of
/// the headers. No exceptions and no RTTI: kernels have neither on a GPU, and lanes are dropped
/// without unwinding. Optimised as the profile says, but at least a little: a lane's stack is small.
pub fn host_compiler() -> cc::Build {
    let level = std::env::var("OPT_LEVEL").ok().and_then(|level| level.parse().ok());
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++20")
        .opt_level(level.unwrap_or(2).clamp(1, 2))
        .warnings(true)
        .extra_warnings(true)
        .flag("-fno-strict-aliasing")
        .flag_if_supported("-fno-exceptions")
        .flag_if_supported("-fno-rtti")
        // A big frame must meet the lane's guard page, not jump over it.
        .flag_if_supported("-fstack-clash-protection");
    // Line tables only: variables would take a third of the compiler's time and most of the objects' bytes.
    // `CXXFLAGS=-g2` brings them.
    if std::env::var("DEBUG").is_ok_and(|debug| debug == "true") {
        build.flag("-g1");
    }
    println!("cargo::rerun-if-env-changed={LANES_VARIABLE}");
    if let Ok(lanes) = std::env::var(LANES_VARIABLE) {
        build.define("WV_SIMT_LANES", lanes.as_str());
    }
    build
}

/// Name of the environment variable that says, when kernels and the SIMT device are compiled, how many
/// lanes a warp has there: 32, or 64 as on AMD's data-centre GPUs.
pub const LANES_VARIABLE: &str = "WARPVERBS_SIMT_LANES";

fn variable(name: &'static str) -> Result<String, BuildError> {
    println!("cargo::rerun-if-env-changed={name}");
    std::env::var(name).map_err(|_| BuildError::NotABuildScript { variable: name })
}

fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    // Unchanged files keep their time stamps, so that nothing is compiled in vain.
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(path, text).map_err(io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_checked_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.cc");
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut build = cc::Build::new();
        build.cpp(true).opt_level(1).debug(true).cargo_metadata(false);
        build.target(&target).host(&target).out_dir(folder.path());
        std::fs::write(&source, "int right() { return 1; }\n").unwrap();
        check(&build, std::slice::from_ref(&source)).unwrap();
        std::fs::write(&source, "int wrong() { return absent; }\n").unwrap();
        let error = check(&build, std::slice::from_ref(&source)).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
        let left = std::fs::read_dir(folder.path()).unwrap().flatten();
        assert!(left.map(|entry| entry.path()).all(|path| path.extension() != Some("o".as_ref())));
    }
}
