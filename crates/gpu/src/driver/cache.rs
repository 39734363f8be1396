//! Compiled kernels on disk, so that only the first run of a program waits for the compiler.
//!
//! An entry is `<source key>-<NVRTC version>.cubin`: the key is SHA-256 over source, headers, options and
//! architecture, and the version stands apart so that an entry can be found where NVRTC is not
//! installed. Its bytes are magic, SHA-256 of the payload, payload length (u64 little-endian),
//! payload. Entries appear by rename, so a reader sees all of one or none.

use crate::GpuError;
use crate::headers::HEADERS;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Folder of the cache, or `off`.
pub const CACHE_ENV: &str = "WARPVERBS_CACHE_DIR";

const MAGIC: &[u8; 8] = b"WVCUBIN1";
const HEADER: usize = 8 + 32 + 8;

/// Version of the compiler that made an entry, major and minor.
pub(super) type Version = (u32, u32);

/// Where compiled kernels are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Nowhere: every load compiles.
    Off,
    /// In this folder, made when first written to.
    At(PathBuf),
}

/// Identifies the input of a compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKey(String);

impl SourceKey {
    /// Hashes source, options (the architecture among them), the headers of the device library and nothing
    /// else.
    pub fn new(source: &str, options: &[String]) -> Self {
        let mut hash = Sha256::new();
        // Lengths stand before the parts, so that no two inputs run together to the same bytes.
        let headers = HEADERS.iter().flat_map(|(name, text)| [name.to_bytes(), text.to_bytes()]);
        let options = options.iter().map(|option| option.as_bytes());
        for part in std::iter::once(source.as_bytes()).chain(headers).chain(options) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn file_name(&self, version: Version) -> String {
        format!("{}-{}.{}.cubin", self.0, version.0, version.1)
    }

    fn version_of(&self, file_name: &str) -> Option<Version> {
        let rest = file_name.strip_prefix(&self.0)?.strip_prefix('-')?.strip_suffix(".cubin")?;
        let (major, minor) = rest.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

impl Cache {
    /// `$WARPVERBS_CACHE_DIR` (`off` for none), else `$XDG_CACHE_HOME/warpverbs`, else
    /// `~/.cache/warpverbs`; off where none of them is set.
    pub fn from_env() -> Self {
        Self::choose(|key| std::env::var_os(key).filter(|value| !value.is_empty()))
    }

    fn choose(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> Self {
        if let Some(named) = var(CACHE_ENV) {
            return if named == "off" { Self::Off } else { Self::At(named.into()) };
        }
        let base = var("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| var("HOME").map(|home| PathBuf::from(home).join(".cache")));
        base.map_or(Self::Off, |base| Self::At(base.join("warpverbs")))
    }

    /// The cubin that compiler `version` made of this source. A damaged entry is as good as none:
    /// it is reported, and replaced by the next [`Cache::store`].
    pub fn load(&self, key: &SourceKey, version: Version) -> Option<Vec<u8>> {
        let Self::At(folder) = self else { return None };
        let path = folder.join(key.file_name(version));
        let bytes = std::fs::read(&path).ok()?;
        let payload = decode(&bytes).map(<[u8]>::to_vec);
        if payload.is_none() {
            tracing::warn!(path = %path.display(), "damaged entry in the compile cache, rebuilding");
        }
        payload
    }

    /// The cubin of this source that the newest compiler made, for a machine without one.
    pub fn load_any(&self, key: &SourceKey) -> Option<(Version, Vec<u8>)> {
        let Self::At(folder) = self else { return None };
        let mut versions: Vec<Version> = std::fs::read_dir(folder)
            .ok()?
            .filter_map(|entry| key.version_of(entry.ok()?.file_name().to_str()?))
            .collect();
        versions.sort_unstable();
        versions.into_iter().rev().find_map(|version| Some((version, self.load(key, version)?)))
    }

    /// Keeps a cubin.
    pub fn store(&self, key: &SourceKey, version: Version, cubin: &[u8]) -> Result<(), GpuError> {
        let Self::At(folder) = self else { return Ok(()) };
        let path = folder.join(key.file_name(version));
        // Processes of several PID namespaces share the folder: their numbers are not unique.
        let scratch = folder.join(format!(".{:032x}.tmp", rand::random::<u128>()));
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| write_entry(&scratch, cubin))
            .and_then(|()| std::fs::rename(&scratch, &path));
        written.map_err(|cause| {
            // Best effort: the error that matters is the one being returned.
            let _ = std::fs::remove_file(&scratch);
            GpuError::Cache { path, cause }
        })
    }
}

fn write_entry(path: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create_new(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&Sha256::digest(cubin))?;
    file.write_all(&(cubin.len() as u64).to_le_bytes())?;
    file.write_all(cubin)
}

fn decode(bytes: &[u8]) -> Option<&[u8]> {
    let (header, payload) = bytes.split_at_checked(HEADER)?;
    let (magic, rest) = header.split_at(8);
    let (digest, len) = rest.split_at(32);
    let whole = magic == MAGIC
        && len == (payload.len() as u64).to_le_bytes()
        && digest == Sha256::digest(payload).as_slice();
    whole.then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const V: Version = (13, 0);

    fn options(list: &[&str]) -> Vec<String> {
        list.iter().map(|&o| o.to_owned()).collect()
    }

    fn key(source: &str) -> SourceKey {
        SourceKey::new(source, &options(&["--gpu-architecture=sm_90"]))
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::At(folder.path().join("not/yet/there"));
        (folder, cache)
    }

    fn chosen(vars: &[(&str, &str)]) -> Cache {
        let vars: HashMap<_, _> = vars.iter().copied().collect();
        Cache::choose(|key| vars.get(key).map(|value| value.into()))
    }

    #[test]
    fn folder_follows_the_environment() {
        let home = ("HOME", "/home/u");
        assert_eq!(chosen(&[home, (CACHE_ENV, "/c")]), Cache::At("/c".into()));
        assert_eq!(chosen(&[home, (CACHE_ENV, "off")]), Cache::Off);
        let xdg = ("XDG_CACHE_HOME", "/x");
        assert_eq!(chosen(&[home, xdg]), Cache::At("/x/warpverbs".into()));
        // The XDG specification has relative paths ignored.
        let relative = ("XDG_CACHE_HOME", "x");
        assert_eq!(chosen(&[home, relative]), Cache::At("/home/u/.cache/warpverbs".into()));
        assert_eq!(chosen(&[]), Cache::Off);
    }

    #[test]
    fn key_depends_on_every_part() {
        let base = SourceKey::new("ab", &options(&["c", "d"]));
        assert_eq!(base, SourceKey::new("ab", &options(&["c", "d"])));
        let others: [(&str, &[&str]); 5] =
            [("a", &["bc", "d"]), ("ab", &["cd"]), ("ab", &["d", "c"]), ("ab", &["c"]), ("", &[])];
        for (source, list) in others {
            assert_ne!(base, SourceKey::new(source, &options(list)), "{source:?} {list:?}");
        }
    }

    #[test]
    fn entry_comes_back_and_other_versions_do_not_match() {
        let (_folder, cache) = cache();
        let key = key("source");
        assert_eq!(cache.load(&key, V), None);
        assert_eq!(cache.load_any(&key), None);
        cache.store(&key, V, b"cubin").unwrap();
        assert_eq!(cache.load(&key, V).as_deref(), Some(&b"cubin"[..]));
        assert_eq!(cache.load(&key, (13, 1)), None);
        assert_eq!(cache.load(&super::tests::key("other"), V), None);
        assert_eq!(Cache::Off.load(&key, V), None);
    }

    #[test]
    fn newest_version_is_found_without_a_compiler() {
        let (_folder, cache) = cache();
        let key = key("source");
        for (version, cubin) in [((12, 9), b"old"), ((13, 10), b"new"), ((13, 9), b"mid")] {
            cache.store(&key, version, cubin).unwrap();
        }
        assert_eq!(cache.load_any(&key), Some(((13, 10), b"new".to_vec())));
    }

    #[test]
    fn any_damage_is_noticed_and_repaired_by_the_next_store() {
        let (_folder, cache) = cache();
        let key = key("source");
        cache.store(&key, V, b"payload").unwrap();
        let Cache::At(folder) = &cache else { unreachable!() };
        let path = folder.join(key.file_name(V));
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x20;
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(cache.load(&key, V), None, "flipped a bit of byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.load(&key, V), None, "cut to {at} bytes");
        }
        assert_eq!(cache.load_any(&key), None);
        cache.store(&key, V, b"payload").unwrap();
        assert_eq!(cache.load(&key, V).as_deref(), Some(&b"payload"[..]));
    }

    #[test]
    fn readers_see_whole_entries_while_writers_race() {
        let (_folder, cache) = cache();
        let key = key("source");
        let payloads: Vec<Vec<u8>> = (1..=4u8).map(|n| vec![n; 40_000 * usize::from(n)]).collect();
        cache.store(&key, V, &payloads[0]).unwrap();
        std::thread::scope(|scope| {
            for payload in &payloads {
                let (cache, key) = (&cache, &key);
                scope.spawn(move || {
                    (0..20).for_each(|_| cache.store(key, V, payload).unwrap());
                });
            }
            for _ in 0..200 {
                let seen = cache.load(&key, V).expect("an entry is always there and whole");
                assert!(payloads.contains(&seen));
            }
        });
        let Cache::At(folder) = &cache else { unreachable!() };
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "scratch files are left over");
    }

    /// Those of a process of another PID namespace that has the same number.
    #[test]
    fn scratch_files_of_others_are_not_in_the_way() {
        let (_folder, cache) = cache();
        let key = key("source");
        cache.store(&key, V, b"first").unwrap();
        let Cache::At(folder) = &cache else { unreachable!() };
        for serial in 0..1000 {
            let name = format!(".{}.{serial}.tmp", std::process::id());
            std::fs::write(folder.join(name), b"another's").unwrap();
        }
        cache.store(&key, V, b"second").unwrap();
        assert_eq!(cache.load(&key, V).as_deref(), Some(&b"second"[..]));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1001, "another's file is gone");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_a_typed_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = Cache::At(file.path().join("below-a-file"));
        let refused = cache.store(&key("source"), V, b"cubin");
        assert!(matches!(refused, Err(GpuError::Cache { .. })), "{refused:?}");
    }
}
