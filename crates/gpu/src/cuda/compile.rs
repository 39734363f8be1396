//! From an image's source to a cubin for one architecture, by way of the cache.

use super::nvrtc::nvrtc;
use crate::driver::Cache;
use crate::driver::compile::{Origin, Request};
use crate::driver::rtc::Compiler;
use crate::{GpuError, Image};

/// Options for every kernel. `--use_fast_math` is left out on purpose: kernels move integers, and
/// what floating point there is must agree with the host SIMT device.
/// `-default-device` is for lambdas, which kernels leave unmarked: nvcc takes them so, NVRTC does not.
const OPTIONS: [&str; 3] = ["-std=c++20", "-lineinfo", "-default-device"];

/// Has the kernels of an image assembled side by side, by NVRTC from 13.0 on: with everything inlined they
/// take seconds one after another. The machine code is the same, so the cache's key leaves this out.
/// Splitting what comes before PTX as well would change what is inlined.
const IN_PARALLEL: &str = "--ptxas-options=--split-compile=0";

/// The options for `arch`, such as `sm_90`.
pub fn options(arch: &str) -> Vec<String> {
    let arch = format!("--gpu-architecture={arch}");
    OPTIONS.iter().map(|&option| option.to_owned()).chain([arch]).collect()
}

/// The cubin of `image` for `arch`.
pub fn cubin(image: &Image, arch: &str, cache: &Cache) -> Result<(Vec<u8>, Origin), GpuError> {
    cubin_by(nvrtc(), image, arch, cache)
}

fn cubin_by(
    compiler: Result<&Compiler, GpuError>,
    image: &Image,
    arch: &str,
    cache: &Cache,
) -> Result<(Vec<u8>, Origin), GpuError> {
    let more = |version| match version >= (13, 0) {
        true => vec![IN_PARALLEL.to_owned()],
        false => Vec::new(),
    };
    Request { image, arch, options: options(arch), more }.code(compiler, cache)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::SourceKey;

    const GOOD: Image = Image {
        name: "good",
        source: "extern \"C\" __global__ void twice(unsigned* p) { *p *= 2; }",
        entries: &[],
        others: &[],
    };
    const BAD: Image = Image {
        name: "bad",
        source: "#line 7 \"warpverbs/impl/post.h\"\nint f() { return missing; }\n",
        entries: &[],
        others: &[],
    };

    fn no_compiler() -> Result<&'static Compiler, GpuError> {
        Err(GpuError::NotFound { library: "NVRTC", file: "libnvrtc.so".to_owned() })
    }

    #[test]
    fn without_compiler_and_cache_the_missing_library_is_named() {
        let refused = cubin_by(no_compiler(), &GOOD, "sm_90", &Cache::Off);
        assert!(matches!(refused, Err(GpuError::NotFound { library: "NVRTC", .. })));
    }

    #[test]
    fn without_compiler_a_cached_cubin_serves() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::At(folder.path().into());
        cache.store(&SourceKey::new(GOOD.source, &options("sm_90")), (13, 0), b"cubin").unwrap();
        let found = cubin_by(no_compiler(), &GOOD, "sm_90", &cache).unwrap();
        assert_eq!(found, (b"cubin".to_vec(), Origin::CachedWithoutCompiler));
        let other = cubin_by(no_compiler(), &GOOD, "sm_80", &cache);
        assert!(matches!(other, Err(GpuError::NotFound { .. })));
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn compiles_for_every_architecture_and_caches() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::At(folder.path().into());
        for arch in ["sm_80", "sm_90", "sm_100"] {
            let (cubin, origin) = super::cubin(&GOOD, arch, &cache).unwrap();
            assert_eq!(origin, Origin::Compiled);
            assert_eq!(&cubin[..4], b"\x7fELF", "a cubin is an ELF file");
            assert_eq!(super::cubin(&GOOD, arch, &cache).unwrap(), (cubin, Origin::Cached));
        }
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn kernels_find_the_headers_of_the_device_library() {
        assert!(crate::Blocks::IMAGE.source.contains("#include \"warpverbs/"));
        super::cubin(crate::Blocks::IMAGE, "sm_90", &Cache::Off).unwrap();
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn a_compile_error_carries_file_and_line() {
        let error = super::cubin(&BAD, "sm_90", &Cache::Off).err();
        let Some(GpuError::Compile { image: "bad", arch, log }) = error else {
            panic!("expected a compile error, got {error:?}");
        };
        assert_eq!(arch, "sm_90");
        assert!(log.contains("warpverbs/impl/post.h(7)"), "{log}");
        assert!(log.contains("missing"), "{log}");
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn an_unknown_architecture_is_a_compile_error() {
        let error = super::cubin(&GOOD, "sm_1", &Cache::Off).err();
        assert!(matches!(error, Some(GpuError::Compile { .. })), "{error:?}");
    }
}
