//! The device library's headers, which compilers of the host and of GPUs are given as files.

use crate::error::{BuildError, io};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

/// The folder of the device library's headers, which are part of this package.
pub fn headers() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
}

/// `headers.rs` for the package that hands them to run-time compilers.
pub(crate) fn embedded() -> Result<String, BuildError> {
    let all = read()?;
    let mut text = format!(
        "/// Names the device headers that this package has, to compare them with those that kernels were built with.\n\
         pub const HEADERS_HASH: u64 = {:#x};\n\
         /// Name and text of each.\n\
         #[cfg(feature = \"driver\")]\n\
         pub(crate) static HEADERS: [(&::core::ffi::CStr, &::core::ffi::CStr); {}] = [\n",
        hash(&all),
        all.len()
    );
    for name in all.keys() {
        // A constant each: the compiler gives up on one that takes long.
        let path = headers().join(name);
        let _ = writeln!(
            text,
            "    (c{name:?}, const {{ with_nul(concat!(include_str!({:?}), \"\\0\")) }}),",
            path.display().to_string()
        );
    }
    text.push_str("];\n");
    Ok(text)
}

/// The `HEADERS_HASH` of a `warpverbs-gpu` with the same headers.
pub(crate) fn headers_hash() -> Result<u64, BuildError> {
    Ok(hash(&read()?))
}

/// Both sides are computed in one build, by one standard library.
fn hash(all: &BTreeMap<String, String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    all.hash(&mut hasher);
    hasher.finish()
}

/// Text of each header by its name, such as `warpverbs/put.h`.
fn read() -> Result<BTreeMap<String, String>, BuildError> {
    let (mut all, mut folders) = (BTreeMap::new(), vec![headers().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(io(&folder))? {
            let path = entry.map_err(io(&folder))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(name) = path.strip_prefix(headers()) {
                let text = std::fs::read_to_string(&path).map_err(io(&path))?;
                all.insert(name.display().to_string(), text);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_named_as_they_are_included() {
        let mut all = read().unwrap();
        assert!(
            all.contains_key("warpverbs/put.h") && all.contains_key("warpverbs/mlx5/segment.h")
        );
        let before = hash(&all);
        all.insert("warpverbs/put.h".into(), String::new());
        assert_ne!(before, hash(&all));
    }
}
