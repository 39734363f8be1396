//! Build-script helper: a directory of `.cu` files becomes host objects for the SIMT device,
//! embedded sources for run-time compilation on a GPU, and typed launchers.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Where the device library's headers are; cargo sets it for packages that depend on `warpverbs`.
//!     let headers = std::env::var("DEP_WARPVERBS_INCLUDE")?;
//!     Ok(warpverbs_kernel_build::Builder::new("kernels").include(headers).compile()?)
//! }
//! ```
//!
//! and in the crate, which must depend on `warpverbs` and `warpverbs-gpu`:
//!
//! ```ignore
//! #[allow(unsafe_code)]
//! pub mod kernels {
//!     include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
//! }
//! ```
//!
//! Each `NAME.cu` is a module `kernels::NAME` with its `IMAGE` and, for every
//! `WV_KERNEL(some_name)(…)`, a struct `SomeName` whose fields are the parameters. Host compiler
//! and GPU compiler are given the same text, in which project includes are expanded.
#![forbid(unsafe_code)]

mod emit;
mod error;
mod flatten;
mod scan;
mod signature;

pub use error::BuildError;

use error::io;
use signature::Signature;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What to build. Paths are relative to the package.
#[derive(Clone, Debug)]
pub struct Builder {
    sources: PathBuf,
    includes: Vec<PathBuf>,
}

/// A `.cu` file after parsing.
struct Unit {
    /// File stem: name of the module and of the image.
    name: String,
    /// The text that compilers get.
    text: String,
    kernels: Vec<Signature>,
}

impl Builder {
    /// All `.cu` files directly in `sources`.
    pub fn new(sources: impl Into<PathBuf>) -> Self {
        Self { sources: sources.into(), includes: Vec::new() }
    }

    /// Adds a directory in which `#include "…"` is looked up.
    pub fn include(mut self, directory: impl Into<PathBuf>) -> Self {
        self.includes.push(directory.into());
        self
    }

    /// Generates, compiles, and tells cargo what to link and what to watch. For build scripts.
    pub fn compile(&self) -> Result<(), BuildError> {
        let out = PathBuf::from(variable("OUT_DIR")?);
        let package = variable("CARGO_PKG_NAME")?;
        let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
        let mut inputs = BTreeSet::from([self.sources.clone()]);
        let units = self.units(&root, &mut inputs)?;
        for input in &inputs {
            println!("cargo::rerun-if-changed={}", input.display());
        }
        let mut build = host_compiler();
        for unit in &units {
            write(&out.join(format!("{}.cu", unit.name)), &unit.text)?;
            let host = out.join(format!("{}.host.cc", unit.name));
            write(&host, &emit::host_source(unit, &package))?;
            build.file(host);
        }
        write(&out.join("kernels.rs"), &emit::launchers(&units, &package))?;
        if units.is_empty() {
            return Ok(());
        }
        build
            .try_compile(&format!("{}_kernels", emit::identifier(&package)))
            .map_err(|e| BuildError::Compile { message: e.to_string() })
    }

    fn units(&self, root: &Path, inputs: &mut BTreeSet<PathBuf>) -> Result<Vec<Unit>, BuildError> {
        let directory = root.join(&self.sources);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(io(&self.sources))? {
            let name = entry.map_err(io(&self.sources))?.file_name();
            if Path::new(&name).extension().is_some_and(|e| e == "cu") {
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
        let flattener = flatten::Flattener { root, includes: &self.includes };
        let flat = flattener.flatten(file)?;
        inputs.extend(flat.inputs);
        let source = std::fs::read_to_string(root.join(file)).map_err(io(file))?;
        Ok(Unit { name, text: flat.text, kernels: signature::parse(file, &source)? })
    }
}

/// Compiler and flags for the host's side. No exceptions and no RTTI: kernels have neither on a
/// GPU, and lanes are dropped without unwinding.
fn host_compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++20")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .flag("-fno-strict-aliasing")
        .flag_if_supported("-fno-exceptions")
        .flag_if_supported("-fno-rtti")
        // A big frame must meet the lane's guard page, not jump over it.
        .flag_if_supported("-fstack-clash-protection");
    build
}

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
