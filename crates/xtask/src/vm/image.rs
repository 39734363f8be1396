//! The guests' root file system, an archive that the kernel unpacks into memory.

use super::kernel::Kernel;
use super::skip::Skip;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use cpio::newc::{Builder, ModeFileType, trailer};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules that a guest needs at once; those that they need are found.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_net", "virtio_console"];
/// Linux's RoCEv2 in software. Once it is there, UDP port 4791 is taken.
const RXE_MODULES: [&str; 4] = ["crc32_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe"];
/// Faults of the packets that an interface sends.
const NETEM_MODULES: [&str; 1] = ["sch_netem"];
/// Debian's programs in every guest, and the packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("rdma", "iproute2"),
    ("tc", "iproute2"),
    ("ibv_devinfo", "ibverbs-utils"),
    ("ibv_rc_pingpong", "ibverbs-utils"),
    ("ib_write_bw", "perftest"),
    ("ib_write_lat", "perftest"),
];
const SCRIPTS: [(&str, &str); 7] = [
    ("init", include_str!("guest/init.sh")),
    ("bin/serve", include_str!("guest/serve.sh")),
    ("bin/state", include_str!("guest/state.sh")),
    ("bin/modules-of", include_str!("guest/modules-of.sh")),
    ("bin/rxe-up", include_str!("guest/rxe-up.sh")),
    ("bin/rxe-down", include_str!("guest/rxe-down.sh")),
    ("bin/netem", include_str!("guest/netem.sh")),
];

/// Files by their names in the guest.
#[derive(Default)]
pub(crate) struct Image(BTreeMap<String, Vec<u8>>);

impl Image {
    /// The files of every guest: busybox, modules, Debian's RDMA programs.
    pub(crate) fn base(kernel: &Kernel) -> Result<Self> {
        let mut image = Self::default();
        let busybox = find("busybox", "busybox-static")?;
        if !libraries(&busybox)?.is_empty() {
            return Err(Skip(format!("{} is not static: busybox-static", busybox.display())).into());
        }
        image.file("bin/busybox", &busybox)?;
        for (name, text) in SCRIPTS {
            image.0.insert(name.into(), text.into());
        }
        image.modules("order", kernel, &MODULES)?;
        image.modules("rxe", kernel, &RXE_MODULES)?;
        image.modules("netem", kernel, &NETEM_MODULES)?;
        for (name, package) in PROGRAMS {
            image.program(&find(name, package)?)?;
        }
        image.providers()?;
        Ok(image)
    }

    /// Adds a program, as `/bin/NAME` and without debug information, and the shared libraries it
    /// needs.
    pub(crate) fn program(&mut self, path: &Path) -> Result<()> {
        let name = path.file_name().context("a program without a name")?.to_string_lossy();
        let short = tempfile::NamedTempFile::new()?;
        workspace::strip(path, short.path())?;
        self.file(&format!("bin/{name}"), short.path())?;
        self.libraries_of(path)
    }

    /// Adds a shared library that is loaded at run time, where the loader looks for it, and those
    /// it needs.
    fn library(&mut self, path: &Path) -> Result<()> {
        self.file(&path.to_string_lossy(), path)?;
        self.libraries_of(path)
    }

    fn libraries_of(&mut self, path: &Path) -> Result<()> {
        for library in libraries(path)? {
            self.file(&library.to_string_lossy(), &library)?;
        }
        Ok(())
    }

    fn file(&mut self, name: &str, path: &Path) -> Result<()> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        self.0.insert(name.trim_start_matches('/').into(), bytes);
        Ok(())
    }

    fn modules(&mut self, list: &str, kernel: &Kernel, names: &[&str]) -> Result<()> {
        let mut order = String::new();
        for path in kernel.resolve(names)? {
            let name = path.file_name().context("a module without a name")?.to_string_lossy();
            self.file(&format!("modules/{name}"), &path)?;
            order += &format!("{name}\n");
        }
        self.0.insert(format!("modules/{list}"), order.into());
        Ok(())
    }

    /// Adds libibverbs' providers for rxe, and for the device of `warpverbs run`.
    fn providers(&mut self) -> Result<()> {
        let absent =
            || Skip("libibverbs has no provider for rxe or mlx5: ibverbs-providers".into());
        let verbs = libraries(&find("ibv_devinfo", "ibverbs-utils")?)?;
        let verbs = verbs.iter().find(|path| path.to_string_lossy().contains("libibverbs.so"));
        let folder = verbs.and_then(|path| path.parent()).with_context(absent)?;
        // ldd may name /lib, which is a link to /usr/lib; providers are looked for in the latter.
        let folder = fs::canonicalize(folder)?.join("libibverbs");
        for driver in ["rxe", "mlx5"] {
            let drivers = format!("/etc/libibverbs.d/{driver}.driver");
            self.file(&drivers, Path::new(&drivers)).map_err(|_| absent())?;
            let (name, mut found) = (format!("lib{driver}-"), false);
            for entry in fs::read_dir(&folder).map_err(|_| absent())? {
                let path = entry?.path();
                if path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name)) {
                    self.library(&path)?;
                    found = true;
                }
            }
            if !found {
                return Err(absent().into());
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, to: &Path) -> Result<()> {
        let mut out = Vec::new();
        let mut folders = BTreeSet::new();
        for name in self.0.keys() {
            folders.extend(Path::new(name).ancestors().skip(1).map(Path::to_path_buf));
        }
        let empty = ["proc", "sys", "dev", "tmp"].map(PathBuf::from);
        for (folder, ino) in
            folders.iter().chain(&empty).filter(|f| !f.as_os_str().is_empty()).zip(1..)
        {
            entry(&mut out, &folder.to_string_lossy(), ModeFileType::Directory, ino, &[])?;
        }
        for ((name, bytes), ino) in self.0.iter().zip(1 << 16..) {
            entry(&mut out, name, ModeFileType::Regular, ino, bytes)?;
        }
        trailer(&mut out)?;
        fs::write(to, out).with_context(|| to.display().to_string())
    }
}

fn entry(out: &mut Vec<u8>, name: &str, kind: ModeFileType, ino: u32, bytes: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let builder = Builder::new(name).mode(0o755).set_mode_file_type(kind).ino(ino).nlink(1);
    let mut file = builder.write(&mut *out, u32::try_from(bytes.len())?);
    file.write_all(bytes)?;
    file.finish()?;
    Ok(())
}

pub(crate) fn find(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin: OsString = "/usr/sbin:/sbin".into();
    let folders = std::env::split_paths(&path).chain(std::env::split_paths(&sbin));
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    let missing = || Skip(format!("{name} is not installed; it is in Debian's {package}"));
    Ok(found.ok_or_else(missing)?)
}

/// The shared libraries that a program or library needs, its loader included.
fn libraries(path: &Path) -> Result<Vec<PathBuf>> {
    let out = Command::new("ldd").arg(path).output().context("ldd")?;
    let text = String::from_utf8_lossy(&out.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        bail!("{}: {}", path.display(), line.trim());
    }
    let words =
        text.lines().filter_map(|line| line.split_whitespace().find(|w| w.starts_with('/')));
    Ok(words.map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_every_folder_before_its_files() {
        let mut image = Image::default();
        image.0.insert("usr/lib/x.so".into(), b"bytes".to_vec());
        image.0.insert("init".into(), b"#!".to_vec());
        let file = tempfile::NamedTempFile::new().expect("a file");
        image.write(file.path()).expect("an archive");
        let mut names = Vec::new();
        let mut rest = std::io::Cursor::new(fs::read(file.path()).expect("bytes"));
        loop {
            let reader = cpio::NewcReader::new(rest).expect("an entry");
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_owned());
            rest = reader.finish().expect("the rest");
        }
        assert_eq!(names, ["usr", "usr/lib", "proc", "sys", "dev", "tmp", "init", "usr/lib/x.so"]);
    }

    #[test]
    fn what_is_not_installed_is_named_with_its_package() {
        let error = find("no-such-program", "its-package").expect_err("there is none");
        assert!(error.is::<Skip>());
        assert!(error.to_string().contains("no-such-program is not installed"), "{error}");
    }
}
