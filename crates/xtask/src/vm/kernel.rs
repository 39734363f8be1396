//! Debian's kernel: fetched once, unpacked beside the build outputs, modules found by name.

use super::skip::Skip;
use anyhow::{Context as _, Result, bail};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that always depends on the newest kernel.
const META: &str = "linux-image-amd64";

/// A kernel, unpacked.
pub(crate) struct Kernel {
    /// Name and version of the package.
    pub(crate) name: String,
    pub(crate) image: PathBuf,
    modules: HashMap<String, PathBuf>,
    folder: PathBuf,
}

impl Kernel {
    /// Debian's newest kernel, from `cache` if it is there.
    pub(crate) fn fetch(cache: &Path) -> Result<Self> {
        let name = candidate()?;
        let folder = cache.join(&name);
        if !folder.join("boot").is_dir() {
            fs::create_dir_all(cache)?;
            let part = tempfile::tempdir_in(cache)?;
            let package = name.split('=').next().unwrap_or_default();
            println!("fetching {package}");
            let fetched = Command::new("apt-get")
                .args(["-q", "-o", "APT::Sandbox::User=root", "download", &name])
                .current_dir(&part)
                .output()?;
            if !fetched.status.success() {
                let said = String::from_utf8_lossy(&fetched.stderr).trim().to_owned();
                return Err(Skip(format!("apt-get download {name} failed: {said}")).into());
            }
            let archive = fs::read_dir(&part)?.next().context("apt-get left no file")??.path();
            let root = part.path().join("root");
            let unpacked = Command::new("dpkg-deb").arg("-x").args([&archive, &root]).status()?;
            if !unpacked.success() {
                bail!("dpkg-deb -x {}: {unpacked}", archive.display());
            }
            // Another process that did the same at the same time has won.
            let _ = fs::rename(&root, &folder);
        }
        Self::open(name, &folder)
    }

    fn open(name: String, folder: &Path) -> Result<Self> {
        let boot = folder.join("boot");
        let mut images = fs::read_dir(&boot).with_context(|| boot.display().to_string())?;
        let image = images
            .find_map(|entry| Some(entry.ok()?.path()).filter(|path| is_image(path)))
            .with_context(|| format!("no vmlinuz in {}", boot.display()))?;
        let mut modules = HashMap::new();
        // Since a later Debian, /lib is a link.
        for lib in ["lib/modules", "usr/lib/modules"] {
            collect(&folder.join(lib), &mut modules)?;
        }
        Ok(Self { name, image, modules, folder: folder.into() })
    }

    /// Where it is remembered whether KVM boots this kernel here.
    pub(crate) fn memory(&self) -> PathBuf {
        self.folder.join("kvm")
    }

    /// The files of `names` and of all they need, each after what it needs; modules that are built
    /// into the kernel have none.
    pub(crate) fn resolve(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        for name in names {
            self.visit(name, &mut order)?;
        }
        Ok(order)
    }

    fn visit(&self, name: &str, order: &mut Vec<PathBuf>) -> Result<()> {
        let Some(path) = self.modules.get(&name.replace('-', "_")) else {
            bail!("{} has no module {name}", self.name);
        };
        if order.contains(path) {
            return Ok(());
        }
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        for needed in depends(&bytes) {
            self.visit(&needed, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

fn is_image(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
}

/// Every `.ko` under `folder` by its module's name.
fn collect(folder: &Path, modules: &mut HashMap<String, PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), modules)?;
        } else if let Some(name) = entry.file_name().to_string_lossy().strip_suffix(".ko") {
            modules.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// The modules that a module says it needs: `depends=a,b` in its section `.modinfo`, which is a
/// list of strings that end with a zero.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let list = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// `package=version` of the newest kernel that apt knows.
fn candidate() -> Result<String> {
    let package = apt_cache(&["depends", META], "Depends: ")?;
    let version = apt_cache(&["policy", &package], "Candidate: ")?;
    Ok(format!("{package}={version}"))
}

/// The text behind `key` in the output of apt-cache.
fn apt_cache(args: &[&str], key: &str) -> Result<String> {
    let what = args.join(" ");
    let out = Command::new("apt-cache")
        .args(args)
        .output()
        .map_err(|error| Skip(format!("apt-cache {what}: {error}; the kernel is Debian's")))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let found = text.lines().find_map(|line| line.trim().strip_prefix(key));
    let none = || Skip(format!("apt-cache {what} shows no '{key}'; does apt-get update help?"));
    Ok(found.filter(|word| *word != "(none)").ok_or_else(none)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_a_module_are_read() {
        assert_eq!(
            depends(b"x\0license=GPL\0depends=ib_core,udp_tunnel\0name=y\0"),
            ["ib_core", "udp_tunnel"]
        );
        assert!(depends(b"x\0depends=\0name=y").is_empty());
        assert!(depends(b"").is_empty());
    }

    #[test]
    fn what_a_module_needs_comes_first_and_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (boot, lib) = (folder.path().join("boot"), folder.path().join("lib/modules/6/a"));
        fs::create_dir_all(&boot).expect("boot");
        fs::create_dir_all(&lib).expect("lib");
        fs::write(boot.join("vmlinuz-6"), "").expect("kernel");
        for (name, text) in
            [("b-c.ko", "\0depends=d\0"), ("d.ko", "\0depends=\0"), ("e.ko", "\0depends=b_c,d\0")]
        {
            fs::write(lib.join(name), text).expect("module");
        }
        let kernel = Kernel::open("k".into(), folder.path()).expect("kernel");
        let order = kernel.resolve(&["d", "e", "b_c"]).expect("order");
        let names: Vec<_> = order.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["d.ko", "b-c.ko", "e.ko"]);
        assert!(kernel.resolve(&["f"]).is_err());
    }
}
