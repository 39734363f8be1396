//! Devices that run kernels, the libraries they need, and what `auto` makes of them.

use super::root::Root;
use serde::Serialize;
use std::path::Path;
use warpverbs::gpu::{self, GpuChoice, GpuError};
use warpverbs::raw::gpu::{cuda, driver::Cache, hip};
use warpverbs::transport::{Context, Decision, NicChoice, Reason};

/// A library that is loaded at run time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Library {
    /// `13.0`; absent if it could not be loaded.
    pub(super) version: Option<String>,
    pub(super) path: Option<String>,
    pub(super) why_not: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Cuda {
    pub(super) driver: Library,
    pub(super) nvrtc: Library,
}

#[derive(Debug, Serialize)]
pub(super) struct Hip {
    pub(super) runtime: Library,
    pub(super) hiprtc: Library,
    /// AMD's kernel driver, through which the run time finds its devices.
    pub(super) kernel_driver: KernelDriver,
}

#[derive(Debug, Serialize)]
pub(super) struct KernelDriver {
    pub(super) usable: bool,
    pub(super) why_not: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct CompileCache {
    /// `off`, `not made yet`, `writable`, `read-only` or `unreadable`.
    pub(super) state: &'static str,
    pub(super) path: Option<String>,
    pub(super) entries: usize,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Auto {
    pub(super) gpu: Choice,
    pub(super) nic: Choice,
}

#[derive(Debug, Serialize)]
pub(super) struct Choice {
    /// The name; absent if nothing can be chosen.
    pub(super) choice: Option<String>,
    pub(super) why: String,
    pub(super) not_better: Vec<Reason>,
}

pub(super) fn cuda() -> Cuda {
    let driver = cuda::driver_version();
    let nvrtc = cuda::nvrtc().map(|nvrtc| nvrtc.version());
    Cuda { driver: library(driver, &["libcuda.so"]), nvrtc: library(nvrtc, &["libnvrtc.so"]) }
}

pub(super) fn hip(root: &Root) -> Hip {
    let compiler = hip::hiprtc().map(|hiprtc| hiprtc.version());
    let runtime = "libamdhip64.so";
    Hip {
        runtime: library(hip::hip_version(), &[runtime]),
        // Until HIP 6 it was a part of the run time, and with the emulator it is.
        hiprtc: library(compiler, &["libhiprtc.so", runtime]),
        kernel_driver: kernel_driver(root),
    }
}

fn kernel_driver(root: &Root) -> KernelDriver {
    let file = "dev/kfd";
    let opened = || {
        if !root.exists(file) {
            return Err("it is not there: is amdgpu loaded, and the file seen in the container \
                        (--device /dev/kfd --device /dev/dri)?"
                .to_owned());
        }
        let open = std::fs::File::options().read(true).write(true).open(root.join(file));
        open.map(drop).map_err(|error| {
            format!("{error}: is this user in the groups render and video, which own it?")
        })
    };
    let why_not = opened().err().map(|why| format!("/{file}: {why}"));
    KernelDriver { usable: why_not.is_none(), why_not }
}

/// The first of `stems` that is loaded is taken for the library's file.
fn library(version: Result<(u32, u32), GpuError>, stems: &[&str]) -> Library {
    match version {
        Ok((major, minor)) => {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            Library {
                version: Some(format!("{major}.{minor}")),
                path: stems.iter().find_map(|stem| mapped(&maps, stem)),
                why_not: None,
            }
        }
        Err(error) => Library { why_not: Some(error.to_string()), ..Library::default() },
    }
}

pub(super) fn compile_cache() -> CompileCache {
    match Cache::from_env() {
        Cache::Off => CompileCache { state: "off", path: None, entries: 0, bytes: 0 },
        Cache::At(folder) => compile_cache_at(&folder),
    }
}

/// `auto` is tried, not guessed: a device counts once it has been opened.
pub(super) fn auto() -> Auto {
    let opened = gpu::open_explained(GpuChoice::Auto);
    let gpu = match &opened {
        Ok(opened) => Choice::of(&opened.why),
        Err(error) => Choice::none(&error),
    };
    let nic = Context::new().and_then(|context| match &opened {
        Ok(opened) => context.open_near(NicChoice::Auto, opened.gpu.info()),
        Err(_) => context.open(NicChoice::Auto),
    });
    let nic = match nic {
        // Its own name counts those of this process.
        Ok(device) => {
            let Decision { route, by, not_better } = device.choice().clone();
            let is_soft = device.info().provider == "soft";
            let name = if is_soft { "soft".to_owned() } else { route };
            Choice { choice: Some(name), why: by, not_better }
        }
        Err(error) => Choice::none(&error),
    };
    Auto { gpu, nic }
}

impl Choice {
    /// Of a line `name: why`.
    fn of(line: &str) -> Self {
        let (choice, why) = line.split_once(": ").unwrap_or(("?", line));
        Self { choice: Some(choice.to_owned()), why: why.to_owned(), not_better: Vec::new() }
    }

    fn none(why: &dyn std::error::Error) -> Self {
        Self { choice: None, why: why.to_string(), not_better: Vec::new() }
    }
}

/// Path of the loaded library whose file name begins with `stem`, as `/proc/self/maps` has it.
fn mapped(maps: &str, stem: &str) -> Option<String> {
    maps.lines()
        .filter_map(|line| line.get(line.find('/')?..))
        .find(|path| {
            let name = Path::new(path).file_name().and_then(|n| n.to_str());
            name.is_some_and(|n| n.starts_with(stem))
        })
        .map(str::to_owned)
}

fn compile_cache_at(folder: &Path) -> CompileCache {
    let mut cache = CompileCache {
        state: "not made yet",
        path: Some(folder.display().to_string()),
        entries: 0,
        bytes: 0,
    };
    if !folder.exists() {
        return cache;
    }
    let Ok(files) = std::fs::read_dir(folder) else {
        cache.state = "unreadable";
        return cache;
    };
    for file in files.flatten().filter(|f| f.path().extension().is_some_and(|e| e == "cubin")) {
        cache.entries += 1;
        cache.bytes += file.metadata().map_or(0, |m| m.len());
    }
    let writable = nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok();
    cache.state = if writable { "writable" } else { "read-only" };
    cache
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_library_is_found_among_mappings() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42   /usr/lib/libcudart.so\n\
                    7f02-7f03 r-xp 00000000 08:01 43   /opt/cuda/lib64/libnvrtc.so.13\n\
                    7f04-7f05 rw-p 00000000 00:00 0\n";
        assert_eq!(mapped(maps, "libnvrtc.so").as_deref(), Some("/opt/cuda/lib64/libnvrtc.so.13"));
        assert_eq!(mapped(maps, "libcuda.so"), None);
    }

    #[test]
    fn a_missing_kernel_driver_of_amd_is_said_with_what_to_do() {
        let (_dir, root) = crate::doctor::root::fake(&[]);
        let missing = kernel_driver(&root);
        assert!(!missing.usable && missing.why_not.unwrap().contains("--device /dev/kfd"));
        crate::doctor::root::add(&root, "dev/kfd", "");
        let there = kernel_driver(&root);
        assert!(there.usable && there.why_not.is_none(), "{there:?}");
    }

    #[test]
    fn the_cache_is_described_in_every_state() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(compile_cache_at(&folder.path().join("none")).state, "not made yet");
        std::fs::write(folder.path().join("a-13.0.cubin"), [0; 100]).unwrap();
        std::fs::write(folder.path().join("other"), [0; 7]).unwrap();
        let cache = compile_cache_at(folder.path());
        assert_eq!((cache.state, cache.entries, cache.bytes), ("writable", 1, 100));
    }
}
