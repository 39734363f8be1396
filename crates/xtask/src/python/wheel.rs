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

/// Libraries that every system with glibc has.
const EVERYWHERE: [&str; 8] = [
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    UNWINDER,
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// The library by which the C library unwinds threads: the module must use the same.
const UNWINDER: &str = "libgcc_s.so.1";

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

    fn newest(text: &str) -> Option<Self> {
        text.split("Name: GLIBC_").skip(1).filter_map(|text| Self::of(text, '.')).max()
    }
}

impl Display for Glibc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A program or library, as `readelf` describes it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Binary {
    name: String,
    bytes: u64,
    /// The newest version of which it needs a symbol.
    glibc: Option<Glibc>,
    /// Its processor, as in the names of wheels.
    machine: &'static str,
    libraries: Vec<String>,
}

impl Binary {
    fn of(name: String, bytes: u64, file: &Path) -> Result<Self> {
        let mut read = Command::new("readelf");
        let words = ["--wide", "--file-header", "--dynamic", "--version-info"];
        let out = read.args(words).arg(file).output().context("readelf")?;
        ensure!(out.status.success(), "readelf {}: {}", file.display(), out.status);
        Ok(Self::read(name, bytes, &String::from_utf8_lossy(&out.stdout)))
    }

    fn read(name: String, bytes: u64, text: &str) -> Self {
        let machine = text.lines().find_map(|line| line.trim().strip_prefix("Machine:"));
        let machine = match machine.map(str::trim) {
            Some("Advanced Micro Devices X86-64") => "x86_64",
            Some("AArch64") => "aarch64",
            _ => "another processor",
        };
        let library = |text: &str| text.split(']').next().unwrap_or_default().to_owned();
        let libraries = text.split("(NEEDED)").skip(1);
        let libraries =
            libraries.filter_map(|text| text.split_once('[').map(|(_, text)| library(text)));
        let libraries = libraries.collect();
        Self { name, bytes, glibc: Glibc::newest(text), machine, libraries }
    }

    /// # Errors
    /// A machine that the wheel's name says cannot load it, or not use it for long.
    fn check(&self, wheel: &str) -> Result<()> {
        let Self { name, glibc, machine, libraries, .. } = self;
        ensure!(wheel.ends_with(&format!("{machine}.whl")), "{name} is for {machine}, not {wheel}");
        let tag = wheel.split_once("manylinux_").and_then(|(_, tag)| Glibc::of(tag, '_'));
        if let (Some(tag), Some(needed)) = (tag, glibc) {
            ensure!(*needed <= tag, "{name} needs glibc {needed}, the wheel is for {tag}");
        }
        let missing = libraries.iter().find(|one| !EVERYWHERE.contains(&one.as_str()));
        ensure!(missing.is_none(), "{name} needs {missing:?}, which not every system has");
        let unwinds = libraries.iter().any(|one| one == UNWINDER);
        ensure!(unwinds, "{name} does not need {UNWINDER}: it has an unwinder of its own");
        Ok(())
    }
}

/// The size of a wheel and its binaries.
struct Content {
    bytes: u64,
    binaries: Vec<Binary>,
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
                    binaries.push(Binary::of(name, content.len() as u64, &path)?);
                }
            }
        }
        binaries.sort();
        Ok(Self { bytes, binaries })
    }

    /// # Errors
    /// Installed it is too large, or a binary is for other machines than its name says.
    fn check(&self, wheel: &Path) -> Result<()> {
        let (bytes, mb) = (self.bytes, MOST / 1_000_000);
        ensure!(bytes <= MOST, "installed the wheel has {bytes} bytes, expected at most {mb} MB");
        let wheel = wheel.display().to_string();
        self.binaries.iter().try_for_each(|binary| binary.check(&wheel))
    }
}

impl Display for Content {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(f, "installed {:.2} MB (wanted: {:.0})", mb(self.bytes), mb(MOST))?;
        for Binary { name, bytes, glibc, machine, libraries } in &self.binaries {
            let glibc = glibc.map_or("no glibc".to_owned(), |needed| format!("glibc {needed}"));
            let (mb, libraries) = (mb(*bytes), libraries.join(", "));
            write!(f, "\n  {name}: {mb:.2} MB, {machine}, needs {glibc}; {libraries}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(glibc: Glibc) -> Binary {
        let libraries = vec!["libc.so.6".to_owned(), UNWINDER.to_owned()];
        Binary {
            name: "program".into(),
            bytes: 1,
            glibc: Some(glibc),
            machine: "x86_64",
            libraries,
        }
    }

    fn content(bytes: u64, needed: Glibc) -> Content {
        Content { bytes, binaries: vec![binary(needed)] }
    }

    #[test]
    fn a_binary_is_read() {
        let text = "  Machine:                           AArch64\n \
                    0x1 (NEEDED)             Shared library: [libgcc_s.so.1]\n \
                    0x1 (NEEDED)             Shared library: [libc.so.6]\n  \
                    0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4\n  \
                    0x0020:   Name: GLIBC_2.28  Flags: none  Version: 3\n  \
                    0x0030:   Name: GLIBC_ABI_DT_RELR  Flags: none  Version: 2\n  \
                    0x0040:   Name: GCC_4.2.0  Flags: none  Version: 5\n";
        let read = Binary::read("program".into(), 1, text);
        assert_eq!((read.glibc, read.machine), (Some(Glibc(2, 28)), "aarch64"));
        assert_eq!(read.libraries, [UNWINDER, "libc.so.6"]);
        let empty = Binary::read("program".into(), 1, "No version information found.\n");
        assert_eq!((empty.glibc, empty.libraries.len()), (None, 0));
        let own = std::env::current_exe().unwrap();
        let own = Binary::of("own".into(), 1, &own).unwrap();
        assert!(own.glibc > Some(Glibc(2, 0)) && own.machine == std::env::consts::ARCH);
    }

    #[test]
    fn a_wheel_for_other_machines_is_refused() {
        let name = "warpverbs-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl";
        let refused = |one: Binary| one.check(name).unwrap_err().to_string();
        let good = || binary(Glibc(2, 28));
        good().check(name).unwrap();
        assert_eq!(
            refused(binary(Glibc(2, 29))),
            "program needs glibc 2.29, the wheel is for 2.28"
        );
        let other = refused(Binary { machine: "aarch64", ..good() });
        assert!(other.starts_with("program is for aarch64, not "), "{other}");
        let more = refused(Binary { libraries: vec!["libibverbs.so.1".into()], ..good() });
        assert!(more.contains("libibverbs.so.1"), "{more}");
        let own = refused(Binary { libraries: vec!["libc.so.6".into()], ..good() });
        assert!(own.contains("an unwinder of its own"), "{own}");
        binary(Glibc(2, 36)).check("warpverbs-0.1.0-cp310-abi3-linux_x86_64.whl").unwrap();
    }

    #[test]
    fn a_large_wheel_is_refused() {
        let own = Path::new("warpverbs-0.1.0-cp310-abi3-linux_x86_64.whl");
        content(MOST, Glibc(2, 36)).check(own).unwrap();
        let large = content(MOST + 1, Glibc(2, 17)).check(own).unwrap_err().to_string();
        assert!(large.contains("15000001 bytes, expected at most 15 MB"), "{large}");
    }
}
