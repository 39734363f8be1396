//! From an image's source to machine code for one architecture, by way of the cache.

use super::cache::{Cache, SourceKey};
use super::rtc::{Compiled, Compiler};
use crate::{GpuError, Image};

/// Where machine code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The compiler made it just now.
    Compiled,
    /// The cache had it.
    Cached,
    /// The cache had it, and there is no compiler that could have made it.
    CachedWithoutCompiler,
}

/// A request to a vendor's compiler.
pub(crate) struct Request<'a> {
    pub(crate) image: &'a Image,
    pub(crate) arch: &'a str,
    /// Options on which the machine code depends, the architecture among them.
    pub(crate) options: Vec<String>,
    /// More options for a compiler of a version, on which the code does not depend.
    pub(crate) more: fn((u32, u32)) -> Vec<String>,
}

impl Request<'_> {
    /// The machine code, and where it came from.
    pub(crate) fn code(
        self,
        compiler: Result<&Compiler, GpuError>,
        cache: &Cache,
    ) -> Result<(Vec<u8>, Origin), GpuError> {
        let Self { image, arch, mut options, more } = self;
        let key = SourceKey::new(image.source, &options);
        let compiler = match compiler {
            Ok(compiler) => compiler,
            Err(missing) => {
                let (_, code) = cache.load_any(&key).ok_or(missing)?;
                return Ok((code, Origin::CachedWithoutCompiler));
            }
        };
        if let Some(code) = cache.load(&key, compiler.version()) {
            return Ok((code, Origin::Cached));
        }
        let name = format!("{}.cu", image.name);
        options.extend(more(compiler.version()));
        let compiled = compiler.compile(image.source, &name, &options).map_err(|failure| {
            let log = format!("{}\n{}", failure.what, failure.log);
            GpuError::Compile { image: image.name, arch: arch.to_owned(), log }
        })?;
        let Compiled { code, log } = compiled;
        if !log.is_empty() {
            tracing::warn!(image = image.name, arch, log, "compiled with warnings");
        }
        if let Err(error) = cache.store(&key, compiler.version(), &code) {
            // The kernel is there and right; only the next start will be slower.
            tracing::warn!(%error, "compiled kernel not kept");
        }
        Ok((code, Origin::Compiled))
    }
}
