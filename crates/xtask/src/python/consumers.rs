//! Programs that use NIXL: their own tests and classes, unchanged, on the wheel, and on request on NIXL's own
//! package beside it. Packages come by pip into a cache; drivers are in `crates/xtask/python`.

use super::environment::pip;
use super::programs::{PATIENCE, output};
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use warpverbs_bench::child;

/// NIXL's own package, for `--nixl`.
const NIXL: [&str; 2] = ["nixl==1.5.1", "nixl-cu13==1.5.1"];

/// How a package comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As sources, by a build that makes nothing but their list of files.
    Sources,
    /// As the files of its wheel, without what it depends on.
    Files,
    /// Installed with all that it depends on.
    Installed,
}

/// A package of a consumer's: where it comes from.
struct Package {
    name: &'static str,
    version: &'static str,
    form: Form,
    /// Environment of that build.
    told: &'static [(&'static str, &'static str)],
}

/// A run: tests or a driver.
enum What {
    /// Tests of the consumer's, by pytest; their modules are in the second package.
    Tests(&'static [&'static str], &'static Package),
    /// A driver of ours with the package's folder.
    Driver(&'static str),
}

struct Consumer {
    package: &'static Package,
    what: What,
    /// Packages that its modules import, beside torch and numpy.
    needs: &'static [&'static str],
    length: Length,
}

/// How long a consumer takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    /// Seconds.
    Quick,
    /// At most [`PATIENCE`].
    Usual,
    /// At most [`LONG`].
    Long,
}

/// How long the longest may take.
const LONG: Duration = Duration::from_secs(1800);

const VLLM: Package = Package {
    name: "vllm",
    version: "0.33.0",
    form: Form::Sources,
    told: &[("VLLM_VERSION_OVERRIDE", "0.33.0"), ("VLLM_TARGET_DEVICE", "empty")],
};
const LMCACHE_TESTS: Package = Package {
    name: "lmcache",
    version: "0.5.6",
    form: Form::Sources,
    told: &[("NO_NATIVE_EXT", "1"), ("NO_CUDA_EXT", "1")],
};
const LMCACHE: Package =
    Package { name: "lmcache", version: "0.5.6", form: Form::Files, told: &[] };
const SGLANG: Package = Package { name: "sglang", version: "0.5.23", form: Form::Files, told: &[] };
const DYNAMO: Package =
    Package { name: "ai-dynamo-runtime", version: "1.6.1", form: Form::Files, told: &[] };

const RAY: Package = Package { name: "ray", version: "2.60.0", form: Form::Installed, told: &[] };

/// Packages that builds of sources need: they run without an environment of their own.
const BUILDS: [&str; 7] =
    ["cmake", "jinja2", "ninja", "packaging", "setuptools_scm", "setuptools-rust", "wheel"];

const LMCACHE_NEEDS: &[&str] = &[
    "aiofile",
    "aiofiles",
    "aiohttp",
    "blake3",
    "cachetools",
    "cryptography",
    "fastapi",
    "httpx",
    "msgspec",
    "numba",
    "nvtx",
    "opentelemetry-exporter-otlp",
    "opentelemetry-exporter-prometheus",
    "opentelemetry-sdk",
    "prometheus_client",
    "psutil",
    "py-cpuinfo",
    "pytest-asyncio",
    "pyyaml",
    "pyzmq",
    "redis",
    "requests",
    "safetensors",
    "sortedcontainers",
    "tqdm",
    "transformers",
    "uvicorn",
];

const fn lmcache(files: &'static [&'static str]) -> Consumer {
    let what = What::Tests(files, &LMCACHE_TESTS);
    Consumer { package: &LMCACHE, what, needs: LMCACHE_NEEDS, length: Length::Usual }
}

const CONSUMERS: [Consumer; 11] = [
    Consumer {
        package: &VLLM,
        what: What::Driver("vllm_transports.py"),
        needs: &[
            "cachetools",
            "cloudpickle",
            "msgspec",
            "psutil",
            "pybase64",
            "pyzmq",
            "regex",
            "requests",
            "tqdm",
        ],
        length: Length::Quick,
    },
    Consumer {
        package: &DYNAMO,
        what: What::Driver("dynamo_connect.py"),
        needs: &["pydantic"],
        length: Length::Quick,
    },
    Consumer {
        package: &SGLANG,
        what: What::Driver("sglang_hicache.py"),
        needs: &[],
        length: Length::Quick,
    },
    Consumer {
        package: &SGLANG,
        what: What::Driver("sglang_manager.py"),
        needs: &["msgspec"],
        length: Length::Quick,
    },
    Consumer {
        package: &VLLM,
        what: What::Driver("vllm_connector.py"),
        needs: &[],
        length: Length::Long,
    },
    Consumer {
        package: &RAY,
        what: What::Driver("ray_transport.py"),
        needs: &[],
        length: Length::Usual,
    },
    lmcache(&["tests/v1/distributed/transfer_channel/test_nixl_impl.py"]),
    lmcache(&["tests/disagg/test_nixl_channel.py"]),
    lmcache(&["tests/v1/distributed/test_nixl_store_l2_adapter.py"]),
    lmcache(&["tests/v1/distributed/test_nixl_store_dynamic_l2_adapter.py"]),
    lmcache(&["tests/v1/test_nixl_storage.py"]),
];

/// Runs all, or the quick ones, and prints a table; `nixl` adds a column with NIXL's own package.
pub(super) fn run(python: &Path, cache: &Path, quick: bool, nixl: bool) -> Result<()> {
    let cache = std::path::absolute(cache)?;
    fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
    let chosen: Vec<&Consumer> =
        CONSUMERS.iter().filter(|consumer| consumer.length == Length::Quick || !quick).collect();
    let needs: Vec<&str> = chosen.iter().flat_map(|one| one.needs).copied().collect();
    pip(python, &["install", "--quiet", "torch"], |pip| pip.args(BUILDS).args(needs))?;
    if nixl {
        pip(python, &["install", "--quiet", "--no-deps"], |pip| pip.args(NIXL))?;
    }
    let mut rows = Vec::new();
    let mut failed = 0;
    for consumer in chosen {
        let ours = consumer.outcome(python, &cache, true);
        failed += usize::from(ours.is_err());
        let theirs = nixl.then(|| consumer.outcome(python, &cache, false));
        rows.push((consumer, ours, theirs));
    }
    let beside = if nixl { " | NIXL's own package" } else { "" };
    println!("\n{:24} {:50} result{beside}", "consumer", "program");
    for (consumer, ours, theirs) in rows {
        let package = format!("{} {}", consumer.package.name, consumer.package.version);
        let theirs = theirs.map(|text| format!(" | {}", said(text))).unwrap_or_default();
        println!("{package:24} {:50} {}{theirs}", consumer.name(), said(ours));
    }
    ensure!(failed == 0, "{failed} consumer(s) failed");
    Ok(())
}

fn said(result: Result<String>) -> String {
    result.unwrap_or_else(|error| format!("FAILED: {error:#}"))
}

impl Consumer {
    fn name(&self) -> &'static str {
        let path = match self.what {
            What::Tests(files, _) => files[0],
            What::Driver(file) => file,
        };
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Runs it on our package or on NIXL's; what its last line says, and how long it took.
    fn outcome(&self, python: &Path, cache: &Path, ours: bool) -> Result<String> {
        let folder = self.package.folder(python, cache)?;
        let mut command = child::command(python);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("NIXL_LOG_LEVEL");
        command.env("WARPVERBS_AS_NIXL", if ours { "1" } else { "0" });
        match self.what {
            What::Tests(files, package) => {
                let sources = package.folder(python, cache)?;
                // Beside the tests there are sources without their native modules, which must not be found first.
                let beside = cache.join(format!("{}-{}-tests", package.name, package.version));
                if !beside.exists() {
                    super::programs::copy(&sources.join("tests"), &beside.join("tests"))?;
                }
                command.current_dir(&beside).env("PYTHONPATH", &folder);
                command.args(["-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"]);
                command.args(["--timeout", "120"]).args(files);
            }
            What::Driver(file) => {
                let drivers = workspace::root()?.join("crates/xtask/python");
                command.current_dir(cache).arg(drivers.join(file)).arg(&folder);
            }
        }
        let begin = Instant::now();
        let patience = if self.length == Length::Long { LONG } else { PATIENCE };
        let out = output(&mut command, patience)?;
        let took = begin.elapsed();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        print!("{text}");
        let sum = text.lines().rev().find_map(sum).with_context(|| {
            let errors = String::from_utf8_lossy(&out.stderr);
            let last = errors.lines().last().unwrap_or("no output");
            format!("no result within {patience:?} ({}): {last}", out.status)
        })?;
        let line = format!("{sum}; {:.0} s in all", took.as_secs_f64());
        ensure!(!sum.contains("failed") && !sum.contains("error"), "{line}");
        // NIXL's package crashes at the end of a process on some machines: its results are in its output.
        ensure!(!ours || out.status.success(), "{line} ({})", out.status);
        Ok(line)
    }
}

/// The part of a line that sums tests up, such as `3 passed, 1 skipped`.
fn sum(line: &str) -> Option<String> {
    let line = line.trim_matches(|each| each == '=' || each == ' ');
    let (words, _) = line.rsplit_once(" in ")?;
    let counts: Vec<&str> = words.split(", ").filter(|word| !word.contains("warning")).collect();
    let is_count = |word: &&str| {
        let Some((number, what)) = word.split_once(' ') else { return false };
        let known = ["passed", "failed", "skipped", "error", "errors", "deselected"];
        number.parse::<u32>().is_ok() && known.contains(&what)
    };
    (!counts.is_empty() && counts.iter().all(is_count)).then(|| counts.join(", "))
}

impl Package {
    /// The folder with its files, fetched if it is not in the cache.
    fn folder(&self, python: &Path, cache: &Path) -> Result<PathBuf> {
        let named = format!("{}=={}", self.name, self.version);
        let kind = match self.form {
            Form::Sources => "sources",
            Form::Files => "files",
            Form::Installed => {
                pip(python, &["install", "--quiet"], |pip| pip.arg(named))?;
                return Ok(cache.to_owned());
            }
        };
        let folder = cache.join(format!("{}-{}-{kind}", self.name, self.version));
        if folder.exists() {
            return Ok(folder);
        }
        let sources = self.form == Form::Sources;
        let archives = tempfile::tempdir_in(cache)?;
        let words = ["download", "--quiet", "--no-deps", "--no-build-isolation"];
        pip(python, &words, |pip| {
            pip.args(["--no-binary", if sources { ":all:" } else { ":none:" }]);
            pip.envs(self.told.iter().copied()).arg(named).arg("--dest").arg(archives.path())
        })?;
        let archive = fs::read_dir(archives.path())?.next().context("pip left no file")??.path();
        let unpacked = tempfile::tempdir_in(cache)?;
        let mut unpack = Command::new(python);
        let code = "import shutil, sys; shutil.unpack_archive(*sys.argv[1:])";
        let format = if sources { "gztar" } else { "zip" };
        unpack.args(["-c", code]).arg(&archive).arg(unpacked.path()).arg(format);
        workspace::done(&mut unpack, "unpack_archive")?;
        let whole = match sources {
            // Of sources there is one folder at the top.
            true => fs::read_dir(unpacked.path())?.next().context("an empty archive")??.path(),
            false => unpacked.path().to_owned(),
        };
        fs::rename(&whole, &folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn sums_of_tests_are_found_and_nothing_else() {
        let all = [
            ("=== 13 passed, 20 warnings in 16.17s ===", Some("13 passed")),
            ("5 passed, 1 failed, 2 skipped in 3.1s", Some("5 passed, 1 failed, 2 skipped")),
            ("1 error in 0.1s", Some("1 error")),
            ("passed reads one block, 0.026 s", None),
            ("waits 3 passed in time in 2s", None),
            ("4 blocks in 2s", None),
        ];
        for (line, expected) in all {
            assert_eq!(sum(line).as_deref(), expected, "{line:?}");
        }
    }
}
