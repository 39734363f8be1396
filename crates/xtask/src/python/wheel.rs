//! Builds the wheel, and says what is in it: how large it is once installed, and which C library it needs.

use super::environment::pip;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes that a wheel for users may have once installed.
const MOST: u64 = 15_000_000;

/// The C library that portable wheels are linked for, that of the oldest systems they are for.
const PORTABLE: Glibc = Glibc(2, 28);

/// How a wheel is built.
#[derive(Clone, Copy)]
pub(crate) enum Build<'a> {
    /// Without optimisation, for tests.
    Quick,
    /// For users with machines like this one.
    Release,
    /// For users with machines of this target of Rust's and a C library from [`PORTABLE`] on.
    Portable(&'a str),
}

impl Build<'_> {
    /// Packages that build it, beside maturin.
    pub(super) fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Portable(_) => &["ziglang>=0.15,<0.18", "cargo-zigbuild>=0.20,<1"],
            _ => &[],
        }
    }

    /// Arguments for maturin, as the package's build backend takes them.
    fn arguments(self) -> Option<OsString> {
        let Glibc(major, minor) = PORTABLE;
        match self {
            Self::Quick => Some("--profile dev".into()),
            Self::Release => None,
            Self::Portable(target) => Some(
                format!("--zig --compatibility manylinux_{major}_{minor} --target {target}").into(),
            ),
        }
    }

    /// Builds it by pip, and says where it is. A wheel for users must keep to its bounds.
    pub(crate) fn wheel(self, python: &Path, environment: &Path) -> Result<PathBuf> {
        let target = workspace::target()?;
        // Empty but for this wheel, whose name has the version and the platform.
        let folder = target.join("wheels");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let first = std::iter::once(environment.join("bin"));
        let path = env::join_paths(first.chain(env::split_paths(&path)))?;
        let package = workspace::root()?.join("crates/python");
        let words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation"];
        pip(python, &words, |pip| {
            pip.env("CARGO_TARGET_DIR", &target).env("PATH", path).arg("--wheel-dir").arg(&folder);
            if let Some(arguments) = self.arguments() {
                let mut setting = OsString::from("build-args=");
                setting.push(arguments);
                pip.arg("-C").arg(setting);
            }
            if matches!(self, Self::Quick) && workspace::is_built() {
                pip.env("WARPVERBS_PROGRAM_DIR", target.join("debug"));
            }
            pip.arg(package)
        })?;
        let found: Vec<PathBuf> = fs::read_dir(&folder)?
            .map(|each| each.map(|each| each.path()))
            .collect::<Result<_, _>>()?;
        ensure!(found.len() == 1, "{} has {} wheels, expected one", folder.display(), found.len());
        let wheel = found.into_iter().next().context("no wheel")?;
        let content = Content::of(python, &wheel)?;
        println!("{}: {} bytes; {content}", wheel.display(), fs::metadata(&wheel)?.len());
        if !matches!(self, Self::Quick) {
            content.check(&wheel)?;
        }
        Ok(wheel)
    }
}

/// A version of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Glibc(u32, u32);

impl Glibc {
    /// Of text that begins with it, such as `2.28)` with `.` between.
    fn of(text: &str, between: char) -> Option<Self> {
        let (major, rest) = text.split_once(between)?;
        let minor = rest.split(|each: char| !each.is_ascii_digit()).next()?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The newest one of which a file needs a symbol.
    fn needed(file: &Path) -> Result<Option<Self>> {
        let mut read = Command::new("readelf");
        let out = read.args(["--wide", "--version-info"]).arg(file).output().context("readelf")?;
        ensure!(out.status.success(), "readelf {}: {}", file.display(), out.status);
        Ok(Self::newest(&String::from_utf8_lossy(&out.stdout)))
    }

    fn newest(text: &str) -> Option<Self> {
        text.split("Name: GLIBC_").skip(1).filter_map(|text| Self::of(text, '.')).max()
    }
}

impl Display for Glibc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The size of a wheel and its binaries.
struct Content {
    bytes: u64,
    /// Programs and libraries, by name.
    binaries: Vec<(String, u64, Option<Glibc>)>,
}

impl Content {
    fn of(python: &Path, wheel: &Path) -> Result<Self> {
        let unpacked = tempfile::tempdir()?;
        let mut unpack = Command::new(python);
        unpack.args(["-m", "zipfile", "-e"]).args([wheel, unpacked.path()]);
        workspace::done(&mut unpack, "python -m zipfile")?;
        let (mut bytes, mut binaries) = (0, Vec::new());
        let mut folders = vec![unpacked.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let content = fs::read(&path)?;
                bytes += content.len() as u64;
                if content.starts_with(b"\x7fELF") {
                    let name = path.strip_prefix(unpacked.path())?.display().to_string();
                    binaries.push((name, content.len() as u64, Glibc::needed(&path)?));
                }
            }
        }
        binaries.sort();
        Ok(Self { bytes, binaries })
    }

    /// # Errors
    /// Installed it is too large, or needs a newer C library than its name says.
    fn check(&self, wheel: &Path) -> Result<()> {
        let (bytes, mb) = (self.bytes, MOST / 1_000_000);
        ensure!(bytes <= MOST, "installed the wheel has {bytes} bytes, expected at most {mb} MB");
        let name = wheel.display().to_string();
        let tag = name.split_once("manylinux_").and_then(|(_, tag)| Glibc::of(tag, '_'));
        for (binary, _, needed) in &self.binaries {
            if let (Some(tag), Some(needed)) = (tag, needed) {
                ensure!(*needed <= tag, "{binary} needs glibc {needed}, the wheel is for {tag}");
            }
        }
        Ok(())
    }
}

impl Display for Content {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(f, "installed {:.2} MB (wanted: {:.0})", mb(self.bytes), mb(MOST))?;
        for (name, bytes, needed) in &self.binaries {
            let needed = needed.map_or("no glibc".to_owned(), |needed| format!("glibc {needed}"));
            write!(f, "\n  {name}: {:.2} MB, needs {needed}", mb(*bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: u64, needed: Glibc) -> Content {
        Content { bytes, binaries: vec![("program".to_owned(), bytes, Some(needed))] }
    }

    #[test]
    fn the_newest_version_counts() {
        let text = "  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4\n  \
                    0x0020:   Name: GLIBC_2.28  Flags: none  Version: 3\n  \
                    0x0030:   Name: GLIBC_ABI_DT_RELR  Flags: none  Version: 2\n  \
                    0x0040:   Name: GCC_4.2.0  Flags: none  Version: 5\n";
        assert_eq!(Glibc::newest(text), Some(Glibc(2, 28)));
        assert_eq!(Glibc::newest("No version information found in this file.\n"), None);
        assert!(Glibc::needed(&env::current_exe().unwrap()).unwrap() > Some(Glibc(2, 0)));
    }

    #[test]
    fn what_is_too_large_or_too_new_is_refused() {
        let portable = Path::new("warpverbs-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl");
        let own = Path::new("warpverbs-0.1.0-cp310-abi3-linux_x86_64.whl");
        content(MOST, Glibc(2, 28)).check(portable).unwrap();
        content(MOST, Glibc(2, 36)).check(own).unwrap();
        let large = content(MOST + 1, Glibc(2, 17)).check(own).unwrap_err().to_string();
        assert!(large.contains("15000001 bytes, expected at most 15 MB"), "{large}");
        let new = content(1, Glibc(2, 29)).check(portable).unwrap_err().to_string();
        assert_eq!(new, "program needs glibc 2.29, the wheel is for 2.28");
    }
}
